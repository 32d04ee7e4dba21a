"""The clock of this machine: as a schedule's owner reads it, and whether it can be believed."""

import json
import time
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

_JUMP_SECONDS = 120.0
_BELIEVED_SECONDS = 600.0


def instant(moment: float, timezone: str, *, seconds: bool = False) -> str:
    """An instant as the schedule's owner reads it."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(moment, ZoneInfo(timezone)).strftime(form)


def boot_id() -> str:
    """Name the time since the machine was started; empty where the kernel does not say."""
    place = Path("/proc/sys/kernel/random/boot_id")
    return place.read_text(encoding="ascii").strip() if place.is_file() else ""


class ClockWatch:
    """Compares the clock with the time since boot, across restarts of the worker.

    A clock that jumps is held for wrong until it has stood for ten minutes: what it would make
    missed cannot be made due again.
    """

    def __init__(self, root: Path) -> None:
        self._place = root / ".posttrain" / "services" / "clock.json"
        self._jumped_at: float | None = None

    def jumped(self) -> float | None:
        """Seconds by which the clock has jumped and is not yet believed; None where all is well."""
        name = boot_id()
        since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        offset = time.time() - since_boot
        try:
            known = json.loads(self._place.read_text(encoding="utf-8"))
            jump = offset - known["offset"] if known["boot"] == name else 0.0
        except (OSError, ValueError, KeyError, TypeError):
            jump = 0.0
        if abs(jump) <= _JUMP_SECONDS:
            self._jumped_at = None
        elif self._jumped_at is None:
            self._jumped_at = since_boot
        if self._jumped_at is not None and since_boot - self._jumped_at < _BELIEVED_SECONDS:
            return jump
        self._jumped_at = None
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._place.write_text(json.dumps({"boot": name, "offset": offset}), encoding="utf-8")
        return None
