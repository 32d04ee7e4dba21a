"""What several functions share: how overrides are given, and where a project's ledger is."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.provenance.ledger import Ledger

AnyPath = str | PathLike[str]
Overrides = Mapping[str, object] | Sequence[str]
"""`{"rl.steps": 20}`, or the words behind `--set`: `["rl.steps=20"]`."""


@dataclass(frozen=True)
class OpenProject:
    """A project's ledger, and the folder that its paths count from."""

    ledger: "Ledger"
    root: Path


@contextmanager
def open_project(place: AnyPath) -> Iterator[OpenProject]:
    """Open the ledger of the project that a folder or a recipe lies in.

    Args:
        place: Any folder or file of the project.

    Yields:
        The project; it is closed at the end.

    Raises:
        UserError: The place is in no project, or nothing ever ran there.

    """
    from posttrain.provenance.ledger import ledger_location, open_ledger
    from posttrain.provenance.ledger.location import project_root

    root = project_root(Path(place).resolve())
    with open_ledger(ledger_location(root), create=False) as ledger:
        yield OpenProject(ledger, root)


def override_words(overrides: Overrides) -> list[str]:
    """Spell overrides as the command line has them.

    >>> override_words({"rl.steps": 20, "sft.learner.lora": {"rank": 16}, "run.device": "cpu"})
    ['rl.steps=20', 'sft.learner.lora={"rank": 16}', 'run.device="cpu"']

    Args:
        overrides: A mapping, or the words themselves.

    Returns:
        `STAGE.PARAM=VALUE` of each.

    Raises:
        UserError: A single text stands in their place.

    """
    if isinstance(overrides, str):
        raise UserError(
            f"overrides: '{overrides}' is one text; give a mapping such as {{'rl.steps': 20}}, or"
            " a list of texts"
        )
    if isinstance(overrides, Mapping):
        return [f"{name}={json.dumps(value, default=str)}" for name, value in overrides.items()]
    return list(overrides)
