"""How far a run is, noted beside its logs for whoever looks at it from another process."""

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from posttrain.pipeline.execution.display import Display
from posttrain.stage.files import replacing

PROGRESS_FILE = "progress.json"
"""In the folder of a run: by stage what it is at, while it executes."""
_SECONDS = 1.0


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
            if time.monotonic() - self._written >= _SECONDS:
                self._write()

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
