"""Several places that change together or not at all: prepare, apply, and undo on any failure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# How each kind of step is taken back; a step that was never taken must be taken back in silence.
Undo = Mapping[str, Callable[[Mapping[str, Any]], None]]
# Whether a note is that of a last step, and that step happened.
IsDone = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class UndoableStep:
    """One change: how it is made, and what its undoing needs to know (plain JSON)."""

    kind: str
    do: Callable[[], None]
    note: Mapping[str, Any]


def apply_together(
    steps: Sequence[UndoableStep], undo: Undo, *, journal: Path, is_done: IsDone
) -> None:
    """Make every change, or none.

    Each step is noted in `journal` before it is made. When one fails, all that were noted are
    undone, last first, and the failure goes on to the caller. A process that is killed leaves the
    journal, and the next command's `recover` undoes what it names. The last step is the point of no
    return: it must be atomic, and `is_done` says of its note whether it happened.
    """
    noted: list[dict[str, Any]] = []
    try:
        for step in steps:
            noted.append({"kind": step.kind, **step.note})
            _write(journal, noted)
            step.do()
    except BaseException:
        # An interrupt can come after the last step happened: then there is nothing to take back.
        if not any(is_done(note) for note in noted):
            _undo(noted, undo)
        journal.unlink(missing_ok=True)
        raise
    journal.unlink(missing_ok=True)


def recover(undo: Undo, *, journal: Path, is_done: IsDone) -> list[str]:
    """Undo what a killed process left half-done; the kinds of steps that were undone."""
    try:
        noted = json.loads(journal.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except ValueError:
        # Killed while the first note was written: nothing was changed yet.
        noted = []
    undone = []
    if not any(is_done(note) for note in noted):
        _undo(noted, undo)
        undone = [str(note["kind"]) for note in noted]
    journal.unlink(missing_ok=True)
    return undone


def _undo(noted: Sequence[Mapping[str, Any]], undo: Undo) -> None:
    """Undo all that can be; the journal stays where one could not, and the next command retries."""
    failures: list[Exception] = []
    for note in reversed(noted):
        try:
            undo[str(note["kind"])](note)
        except Exception as error:  # noqa: BLE001 - the others must be undone all the same
            failures.append(error)
    if failures:
        raise failures[0]


def _write(journal: Path, noted: Sequence[Mapping[str, Any]]) -> None:
    journal.parent.mkdir(parents=True, exist_ok=True)
    partial = journal.with_suffix(".partial")
    partial.write_text(json.dumps(list(noted)), encoding="utf-8")
    partial.replace(journal)
