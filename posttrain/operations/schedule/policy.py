"""What becomes of ticks at which no worker was up: a pure function of times."""

from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.operations.schedule.schedule import CronSchedule


@dataclass(frozen=True)
class TickDecision:
    """What is decided about one tick, and why, in words for `schedule history`."""

    due: float
    runs: bool
    reason: str


def decide(
    schedule: CronSchedule, ticks: Sequence[float], *, known: frozenset[float], now: float
) -> list[TickDecision]:
    """Verdicts on those of `ticks` that are missed at `now`; others are left to their time.

    `ticks` are instants of the schedule in any order, `known` those with a verdict or a run
    already: they are never decided twice, so a clock that is set back repeats nothing. A tick is
    missed once it is `grace_seconds` old. Ticks from before `since` do not belong to the schedule,
    nor do any while it is paused: a pause ends with a new `since`.
    """
    if schedule.paused:
        return []
    missed = sorted(
        tick for tick in set(ticks) - known if schedule.since <= tick < now - schedule.grace_seconds
    )
    allowed = {"skip": 0, "latest": 1, "backfill": schedule.backfill}[schedule.on_missed]
    chosen = set(missed[len(missed) - min(allowed, len(missed)) :])
    # One that came later and is not missed, done or just due, is the latest already.
    later = (tick for tick in known.union(ticks) if missed and missed[-1] < tick <= now)
    if schedule.on_missed == "latest" and any(later):
        chosen = set()
    return [_decide_missed(schedule, tick, tick in chosen, now, len(missed)) for tick in missed]


def _decide_missed(
    schedule: CronSchedule, tick: float, runs: bool, now: float, num_missed: int
) -> TickDecision:
    late = f"missed by {lateness(now - tick)}, one of {num_missed}"
    what = "made good" if runs else "skipped"
    return TickDecision(tick, runs, f"{late}; {what} by --on-missed {schedule.missed()}")


def lateness(seconds: float) -> str:
    """A span in the one unit that matters."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
