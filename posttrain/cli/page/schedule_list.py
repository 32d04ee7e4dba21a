"""Schedules and what became of what was due, as their notes say; nothing is written."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posttrain.operations.schedule.clock import instant
from posttrain.operations.schedule.notes import ScheduleNotes, Tick, has_notes, open_notes
from posttrain.operations.schedule.recipes import Schedule
from posttrain.stage.formatting import duration


@dataclass(frozen=True)
class ListedSchedule:
    """A schedule that was applied."""

    name: str
    recipe: str
    cron: str
    timezone: str
    missed: str
    paused: bool
    coming: str
    """When it runs next."""


@dataclass(frozen=True)
class ListedTick:
    """One moment of a schedule."""

    schedule: str
    due: float
    when: str
    status: str
    reason: str
    took: str
    run_id: str
    log: str
    story: tuple[tuple[str, str], ...]


def listed_schedules(root: Path) -> list[ListedSchedule]:
    """Read every schedule that was applied.

    Args:
        root: The project.

    Returns:
        By name; none where nobody ever applied one.

    """
    with _notes(root) as notes:
        known = notes.declarations().values() if notes else ()
        return [
            _listed(Schedule.from_text(each.text), each.name, paused=each.paused) for each in known
        ]


def listed_ticks(root: Path, name: str | None, *, limit: int) -> list[ListedTick]:
    """Read what was due.

    Args:
        root: The project.
        name: Of one schedule; None for all.
        limit: How many.

    Returns:
        Newest first.

    """
    with _notes(root) as notes:
        if notes is None:
            return []
        zones = {
            each.name: Schedule.from_text(each.text).config.timezone
            for each in notes.declarations().values()
        }
        found = notes.history(name, limit=limit)
    return [_of_tick(tick, zones.get(tick.schedule, "UTC")) for tick in found]


@contextmanager
def _notes(root: Path) -> Iterator[ScheduleNotes | None]:
    """The notes, where there are some: to look must not make any."""
    if not has_notes(root):
        yield None
        return
    with open_notes(root) as notes:
        yield notes


def _listed(schedule: Schedule, name: str, *, paused: bool) -> ListedSchedule:
    from posttrain.operations.schedule.times import next_ticks

    config = schedule.config
    coming = [] if paused else next_ticks(schedule.clock, time.time(), 1)
    return ListedSchedule(
        name,
        schedule.recipe,
        config.cron,
        config.timezone,
        config.missed,
        paused,
        f"{instant(coming[0], config.timezone)} {config.timezone}" if coming else "",
    )


def _of_tick(tick: Tick, zone: str) -> ListedTick:
    lasted = tick.started is not None and tick.ended is not None
    seconds = (tick.ended or 0.0) - (tick.started or 0.0) if lasted else 0.0
    return ListedTick(
        tick.schedule,
        tick.due,
        instant(tick.due, zone),
        tick.status,
        tick.reason,
        duration(max(0.0, seconds)) if lasted else "",
        str(tick.data.get("run_id") or ""),
        str(tick.data.get("log") or ""),
        tuple((instant(at, zone, seconds=True), said) for at, said in tick.story),
    )
