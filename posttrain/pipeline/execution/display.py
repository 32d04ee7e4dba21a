"""What a person sees while stages run: live bars, plain lines, or notes for another process."""

import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from posttrain.stage.files import replacing

_MARKS = {"succeeded": "ran", "restored": "restored", "cached": "up to date", "failed": "FAILED"}
_PLAIN_SECONDS = 20.0
# Shown until the first stage runs: Prefect takes some seconds to start.
_OPENING = "starting"
PROGRESS_FILE = "progress.json"
"""In the folder of a run: by stage what it is at, while it executes."""
_NOTED_SECONDS = 1.0


class Display:
    """Told of every stage's start, progress and end, from several threads; this one is silent."""

    def started(self, stage: str, reasons: Sequence[str]) -> None:
        """A stage begins to execute."""

    def progress(self, stage: str, done: int, total: int, unit: str) -> None:
        """`done` of `total` units are finished."""

    def noted(self, stage: str, line: str) -> None:
        """A stage says something of itself that is to be seen at once, such as where it goes on."""

    def finished(self, stage: str, status: str, seconds: float) -> None:
        """A stage is over: succeeded, restored, cached or failed."""


class PlainDisplay(Display):
    """One line per start and end, and now and then one for progress: for logs and CI."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def started(self, stage: str, reasons: Sequence[str]) -> None:
        """Say which stage runs and why."""
        self._told[stage] = time.monotonic()
        _say(f"{stage}: running ({_short(reasons)})")

    def progress(self, stage: str, done: int, total: int, unit: str) -> None:
        """Say it every twenty seconds."""
        now = time.monotonic()
        if now - self._told.get(stage, 0.0) >= _PLAIN_SECONDS:
            self._told[stage] = now
            _say(f"{stage}: {unit} {done}/{total}")

    def noted(self, stage: str, line: str) -> None:
        """Say it."""
        _say(f"{stage}: {line}")

    def finished(self, stage: str, status: str, seconds: float) -> None:
        """Say how it ended."""
        took = f" in {seconds:.1f} s" if status in ("succeeded", "failed") else ""
        _say(f"{stage}: {_MARKS[status]}{took}")


class _Left(TimeRemainingColumn):
    """Time that is left, once that can be known."""

    def render(self, task: Task) -> Text:
        """Nothing for a stage that has not said how much it has to do."""
        return super().render(task) + Text(" left") if task.total is not None else Text()


class LiveDisplay(Display):
    """Bars for the stages that run, a line above them for each that is over."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.description:<12}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeElapsedColumn(),
            _Left(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        self._tasks[_OPENING] = self._bars.add_task(_OPENING, total=None, unit="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def started(self, stage: str, reasons: Sequence[str]) -> None:
        """Open the stage's bar."""
        if _OPENING in self._tasks:
            self._bars.remove_task(self._tasks.pop(_OPENING))
        self._bars.console.print(
            f"  [cyan]{'running':<10}[/] {stage:<12} [dim]{escape(_short(reasons))}[/]"
        )
        self._tasks[stage] = self._bars.add_task(stage, total=None, unit="")

    def progress(self, stage: str, done: int, total: int, unit: str) -> None:
        """Move the stage's bar."""
        if stage in self._tasks:
            self._bars.update(self._tasks[stage], completed=done, total=total, unit=unit)

    def noted(self, stage: str, line: str) -> None:
        """Leave a line above the bars."""
        self._bars.console.print(f"  {'':<10} {stage:<12} [dim]{escape(line)}[/]")

    def finished(self, stage: str, status: str, seconds: float) -> None:
        """Close the bar and leave a line."""
        if stage in self._tasks:
            self._bars.remove_task(self._tasks.pop(stage))
        color = "red" if status == "failed" else "green"
        took = f" [dim]{seconds:.1f} s[/]" if status in ("succeeded", "failed") else ""
        self._bars.console.print(f"  [{color}]{_MARKS[status]:<10}[/] {stage:<12}{took}")


class NotedProgress(Display):
    """Passes everything on, and notes once a second how far the stages are."""

    def __init__(self, shown: Display, folder: Path) -> None:
        self._shown = shown
        self._file = folder / PROGRESS_FILE
        self._stages: dict[str, dict[str, Any]] = {}
        self._written = 0.0
        self._lock = threading.Lock()

    def started(self, stage: str, reasons: Sequence[str]) -> None:
        """Note that a stage begins, and why."""
        self._shown.started(stage, reasons)
        with self._lock:
            self._stages[stage] = {"began": time.time(), "reason": next(iter(reasons), "")}
            self._write()

    def progress(self, stage: str, done: int, total: int, unit: str) -> None:
        """Note how far a stage is."""
        self._shown.progress(stage, done, total, unit)
        with self._lock:
            self._stages.setdefault(stage, {"began": time.time(), "reason": ""})
            self._stages[stage] |= {"done": done, "total": total, "unit": unit}
            if time.monotonic() - self._written >= _NOTED_SECONDS:
                self._write()

    def noted(self, stage: str, line: str) -> None:
        """Pass it on."""
        self._shown.noted(stage, line)

    def finished(self, stage: str, status: str, seconds: float) -> None:
        """Forget a stage that is over: the ledger has it."""
        self._shown.finished(stage, status, seconds)
        with self._lock:
            if self._stages.pop(stage, None) is not None:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        # A run goes on also where nobody can be told how far it is.
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._file) as partial:
                partial.write_text(json.dumps(self._stages), encoding="utf-8")


def read_progress(folder: Path) -> dict[str, dict[str, Any]]:
    """Read how far a run is.

    Args:
        folder: Of the run.

    Returns:
        By stage that executes: `began` in seconds since 1970, `reason`, and where it told so
        `done` of `total` of a `unit`; nothing where nobody noted any.

    """
    try:
        found = json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _short(reasons: Sequence[str]) -> str:
    more = f" and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else "no reason recorded"


def _say(line: str) -> None:
    # In one piece: print writes the end of a line by itself, after what another thread wrote.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
