"""`profile:` of a recipe: which defaults lie below what it states, by the size of its model.

Defaults in `tasks/*/config.py` are those of a model of 0.1 million parameters that begins from
nothing: the profile `tiny`, which sets nothing. The profile `real` sets others, for models that
somebody trained elsewhere; what a recipe or its method states goes before either.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from posttrain.methods.lay import laid_over
from posttrain.pipeline.profile_values import REAL, Values
from posttrain.provenance.ledger.location import PARAMS_FILE
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.learning.algorithms.config import Algorithm

IMPORT = "import_model"
"""The section of the model that a recipe begins with."""

LEAST_REAL = 50_000_000
"""Parameters from which a local model is real. All that the defaults were chosen on has 0.1 to 1.3
million; the smallest released models that are commonly trained further have 70 (Pythia-70M) and 135
(SmolLM2-135M), and the sources of the other values 360 to 70,000."""

SINCE_FORMAT = 3
"""The format of recipes in which `auto` is the default: older ones were written for one set of
defaults, and go on having it."""

ProfileName = Literal["tiny", "real"]
PROFILES = ("auto", "tiny", "real")
"""What a recipe may say."""

_MOST_HEADER = 100_000_000
"""Bytes: the format's own limit to a header."""


@dataclass(frozen=True)
class Profile:
    """Which defaults hold for a recipe, and why."""

    name: ProfileName = "tiny"
    why: str = ""
    """A clause; empty where nothing was to choose."""
    has_model: bool = False
    """Whether the recipe imports a model."""
    has_real_model: bool = False
    """Whether that is of real size, whatever profile the recipe asks for."""

    def sets_for(self, package: str, said: Values, *, on_gpu: bool) -> dict[str, Any]:
        """Return what it sets for a stage, as a section would say it.

        Args:
            package: Of the stage's task.
            said: The section as recipe and method have it: what is trained, and in which portions.
            on_gpu: Whether the recipe runs on one.

        """
        sets = REAL.get(package)
        if self.name != "real" or sets is None or (sets.of_imported and not self.has_model):
            return {}
        laid = laid_over(sets.always, sets.on_gpu if on_gpu else {})
        if trains_adapters(said):
            laid = laid_over(laid, sets.with_lora)
        if sets.with_critic and has_critic(said):
            laid = laid_over(laid, sets.with_critic)
        return _fitted(laid, said)


def trains_adapters(section: Mapping[str, Any]) -> bool:
    """Tell whether a section, or the run that it says again, has `learner.lora`."""
    learner = _learning(section).get("learner")
    return isinstance(learner, Mapping) and learner.get("lora") is not None


def has_critic(section: Mapping[str, Any]) -> bool:
    """Tell whether the algorithm of a section, or of the run that it says again, has a critic."""
    from pydantic import TypeAdapter, ValidationError

    from posttrain.learning.algorithms.presets import AlgorithmConfig

    adapter: TypeAdapter[Algorithm] = TypeAdapter(AlgorithmConfig)
    try:
        algorithm = adapter.validate_python(_learning(section).get("algorithm", {}))
    except (ValidationError, UserError):
        # It is refused with the whole section.
        return False
    return algorithm.critic is not None or "turn_values" in algorithm.needs


def _learning(section: Mapping[str, Any]) -> Mapping[str, Any]:
    """The section itself, or what it says again of a run."""
    run = section.get("run")
    return run if isinstance(run, Mapping) else section


def choose_profile(
    file: Path, stated: object, imported: Mapping[str, Any] | None, *, form: int
) -> Profile:
    """Choose the defaults of a recipe.

    A model that is not there is of the size that params.yaml remembers: a clone without the model
    finds everything up to date that was made with it.

    Args:
        file: The recipe.
        stated: Its `profile`; None where it says nothing.
        imported: Its section `import_model`; None where it has none.
        form: The recipe's format.

    Returns:
        The profile.

    Raises:
        UserError: `profile` is no profile.

    """
    if stated is not None and stated not in PROFILES:
        hint = nearest(str(stated), PROFILES) or f"; write one of {', '.join(PROFILES)}"
        raise UserError(f"{file}: profile: there is no profile '{stated}'{hint}")
    is_real, size = (False, "") if imported is None else _size_of(imported, file.parent)
    if stated == "auto" or (stated is None and form >= SINCE_FORMAT):
        return Profile("real" if is_real else "tiny", size, imported is not None, is_real)
    said = "the recipe says so"
    if stated is None:
        said = f"the recipe is of format {form}, and says no profile" if size else ""
    why = "; ".join(filter(None, (said, size)))
    name: ProfileName = "real" if stated == "real" else "tiny"
    return Profile(name, why, imported is not None, is_real)


def count_parameters(folder: Path) -> int | None:
    """Count the weights of a checkpoint by the headers of its safetensors files.

    Args:
        folder: Of the checkpoint.

    Returns:
        The number of weights; None where there is no such file, or one that cannot be read.

    """
    files = sorted(folder.glob("*.safetensors"))
    try:
        return sum(size for file in files for size in _sizes_in(file)) if files else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error):
        return None


def _sizes_in(file: Path) -> Iterator[int]:
    """Numbers of each tensor. A file begins with the length of its header, 8 bytes, and the header
    is JSON (https://github.com/huggingface/safetensors, Format).
    """
    with file.open("rb") as opened:
        (length,) = struct.unpack("<Q", opened.read(8))
        if length > _MOST_HEADER:
            raise ValueError(length)
        header = json.loads(opened.read(length))
    for name, tensor in header.items():
        if name != "__metadata__":
            yield math.prod(tensor["shape"])


def _size_of(imported: Mapping[str, Any], folder: Path) -> tuple[bool, str]:
    """Whether the model is real, and how that is known."""
    if imported.get("name") is not None:
        return True, f"{IMPORT} names {imported['name']} on the hub"
    place = imported.get("path")
    path = folder / Path(place).expanduser() if isinstance(place, str) else folder / "?"
    if not path.exists():
        told = f", and {PARAMS_FILE} says real" if (remembered := _remembered(folder)) else ""
        return remembered, f"{IMPORT} is not there{told}"
    count = count_parameters(path)
    if count is None:
        return False, f"the size of {IMPORT} cannot be told by any safetensors"
    side = "at least" if count >= LEAST_REAL else "fewer than"
    return count >= LEAST_REAL, f"{IMPORT} has {count:,} parameters, {side} {LEAST_REAL:,}"


def _remembered(folder: Path) -> bool:
    """Whether the generated file says that the profile was real."""
    try:
        params = YAML(typ="safe").load((folder / PARAMS_FILE).read_text(encoding="utf-8"))
        return bool(params["profile"] == "real")
    except (OSError, ValueError, LookupError, TypeError, YAMLError):
        return False


def _fitted(laid: dict[str, Any], said: Values) -> dict[str, Any]:
    """Leave out what does not go with something that is stated."""
    batch, portion = said.get("batch_tokens"), laid.get("micro_batch_tokens")
    if isinstance(batch, int) and portion is not None and batch <= portion:
        # A batch that is no larger than a portion has none.
        del laid["micro_batch_tokens"]
    draw = said.get("draw")
    if isinstance(draw, Mapping) and draw.get("mask") is not None:
        # Which only the engine of the defaults asks at every token.
        laid.pop("engine", None)
    return laid
