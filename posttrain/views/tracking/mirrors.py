"""Mirrors of the curves for who looks elsewhere: one adapter, and what is common to all of them.

A mirror is opened for a stage, is told values by step, and is closed with the last figures. Which
stage goes on from a killed attempt, and which steps that one has told, is noted here, as mirrors
are not asked.
"""

import importlib
import json
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line
from posttrain.stage.files import replacing
from posttrain.views.tracking.base import Finished, Started, Status


@dataclass(frozen=True)
class MirroredStage:
    """What a mirror knows of the stage that it shows.

    Args:
        recipe: Name of the recipe.
        run: The ledger's id of the run in which the stage was first begun.
        stage: Name of the stage.
        told: The last step that a killed attempt has told; 0 where there was none.
        params: Of the stage.
        tags: What identifies it.

    """

    recipe: str
    run: str
    stage: str
    told: int = 0
    params: Mapping[str, object] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


class CurveMirror(ABC):
    """Shows one stage."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of a step; steps come in order."""

    @abstractmethod
    def flush(self) -> None:
        """Keep what was told, whatever happens to the process."""

    @abstractmethod
    def close(self, status: Status, metrics: Mapping[str, float]) -> None:
        """Show how the stage ended, and its last figures."""


@dataclass
class MirrorWriter:
    """Opens a mirror for each stage, and notes in `notes` what each was told."""

    notes: Path
    open_mirror: Callable[[MirroredStage], CurveMirror]
    recipes: dict[str, tuple[str, str]] = field(default_factory=dict)
    shown: dict[str, tuple[Path, MirroredStage, CurveMirror]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def start(self, handle: str, started: Started, _moment: float) -> None:
        """Open a mirror for a stage; one of the same key that did not succeed is gone on with."""
        if started.parent is None:
            self.recipes[handle] = started.name, started.tags.get("posttrain.run", handle)
            return
        recipe, run = self.recipes[started.parent]
        note = self.notes / f"{started.name}-{started.tags.get('posttrain.key', handle)[:16]}.json"
        told = 0
        if note.is_file():
            before = json.loads(note.read_text())
            run, told = before["run"], before["told"]
        stage = MirroredStage(recipe, run, started.name, told, started.params, started.tags)
        self.shown[handle] = note, stage, self.open_mirror(stage)
        self.last[handle] = stage.told
        self._note(handle)

    def metrics(self, handle: str, step: int, values: Mapping[str, float], _moment: float) -> None:
        """Tell the values of a step, unless an earlier attempt has."""
        _, stage, mirror = self.shown[handle]
        if step > stage.told:
            mirror.log(step, values)
            self.last[handle] = max(step, self.last[handle])

    def flush(self) -> None:
        """Let mirrors keep what they were told, then note it."""
        for handle, (_, _, mirror) in self.shown.items():
            mirror.flush()
            self._note(handle)

    def finish(self, handle: str, finished: Finished, _moment: float) -> None:
        """Close the mirror of a stage."""
        if handle in self.shown:
            self._close(handle, finished.status, finished.metrics)

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """Mirrors show curves."""

    def close(self) -> None:
        """Close what the run left open: it was killed."""
        for handle in [*self.shown]:
            self._close(handle, "killed", {})

    def _close(self, handle: str, status: Status, metrics: Mapping[str, float]) -> None:
        note, _, mirror = self.shown[handle]
        mirror.flush()
        self._note(handle)
        mirror.close(status, metrics)
        if status == "succeeded":
            note.unlink(missing_ok=True)
        del self.shown[handle]

    def _note(self, handle: str) -> None:
        note, stage, _ = self.shown[handle]
        note.parent.mkdir(parents=True, exist_ok=True)
        with replacing(note) as partial:
            partial.write_text(json.dumps({"run": stage.run, "told": self.last[handle]}))


def prepare_mirror(library: str, extra: str, *, alone: bool) -> None:
    """Import what writes a mirror, and close it where the run is gone, which ends this process.

    Args:
        library: The module that writes.
        extra: Of posttrain, which brings it.
        alone: Whether this process is the writer's own.

    Raises:
        UserError: It is not installed.

    """
    try:
        importlib.import_module(library)
    except ModuleNotFoundError:
        raise UserError(
            f"it is not installed; {extra_line(extra)}, or leave it out of POSTTRAIN_TRACKING"
        ) from None
    if alone:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
