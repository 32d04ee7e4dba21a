"""What the stages of a recipe have at the Hugging Face hub, and what is still to be fetched."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from posttrain.data.sources.base import Source
from posttrain.learning.models.source import ModelSource
from posttrain.stage.config import StageConfig, configs_in
from posttrain.stage.formatting import bytesize
from posttrain.stage.spec import Dag

_SCALE = {"M": 10**6, "B": 10**9}
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)([MB])(?![a-zA-Z0-9])")
_BYTES = 2
"""Of a parameter, as nearly all models at the hub are stored: bfloat16 or float16."""


class AtHub(NamedTuple):
    """One commit of a model or a data set."""

    kind: str
    """`models` or `datasets`, as in the hub's addresses."""
    name: str
    revision: str


def notes_on_hub(dag: Dag, running: Iterable[str]) -> Iterator[str]:
    """Say what will be fetched, and where nothing can be.

    Args:
        dag: The stages of a recipe.
        running: Names of those that would run.

    Yields:
        A sentence for each model and data set, behind the name of its stage.

    """
    for name in running:
        found = dict.fromkeys(filter(None, map(_at_hub, configs_in(dag.stages[name].config))))
        for each in found:
            yield f"{name}: {_told(each)}"


def _at_hub(config: StageConfig) -> AtHub | None:
    if isinstance(config, ModelSource) and config.name:
        return AtHub("models", config.name, str(config.revision))
    # Spelled as a schedule watches it: hf:datasets/OWNER/NAME@REVISION.
    place = config.fetched() if isinstance(config, Source) else None
    if place is None or not place.startswith("hf:"):
        return None
    kind, _, rest = place.removeprefix("hf:").partition("/")
    name, _, revision = rest.partition("@")
    return AtHub(kind, name, revision)


def _told(each: AtHub) -> str:
    # Here, as most plans have nothing at the hub.
    from huggingface_hub import constants

    is_model = each.kind == "models"
    what = f"{'model' if is_model else 'data set'} {each.name} at {each.revision[:12]}"
    cache = Path(constants.HF_HUB_CACHE)
    is_cached = (cache / _folder(each) / "snapshots" / each.revision).is_dir()
    if is_cached:
        return f"{what} is in the hub's cache on this machine, {cache}"
    if not constants.HF_HUB_OFFLINE:
        return f"{what} is fetched from the hub when the stage runs{_size(each)}"
    typed = "" if is_model else " --repo-type dataset"
    return (
        f"{what} is not in the hub's cache on this machine, {cache}, and HF_HUB_OFFLINE keeps it"
        f" from being fetched{_size(each)}; unset it, fetch this first where there is a network"
        f" (hf download {each.name}{typed} --revision {each.revision}), or give a folder as path"
    )


def _folder(each: AtHub) -> str:
    """The folder of a repository in the hub's cache."""
    return "--".join((each.kind, *each.name.split("/")))


def _size(each: AtHub) -> str:
    """What a model takes by the size in its name, where there is one: `0.5B` is half a billion."""
    stated = _SIZE.search(each.name.partition("/")[2]) if each.kind == "models" else None
    if stated is None:
        return ""
    count = float(stated[1]) * _SCALE[stated[2]]
    return f" (some {bytesize(_BYTES * count)}: {stated[0]} by its name, in {_BYTES} bytes each)"
