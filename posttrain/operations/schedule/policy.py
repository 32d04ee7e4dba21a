"""What becomes of ticks at which no worker was up: a pure function of times."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TickDecision:
    """What is decided about one tick, and why, in words for `schedule history`."""

    due: float
    runs: bool
    reason: str


def decide(
    policy: str,
    ticks: Sequence[float],
    *,
    known: frozenset[float] | set[float],
    now: float,
    grace: float,
) -> list[TickDecision]:
    """Decide on those of `ticks` that are missed at `now`; others are left to their time.

    Args:
        policy: `skip`, `latest` or `backfill:N`.
        ticks: Instants of the schedule in any order.
        known: Those with a decision already: they are never decided twice, so a clock that is set
            back repeats nothing.
        now: In UTC epoch seconds, as all instants are.
        grace: A tick is missed once it is older than this, in seconds.

    Returns:
        The decisions, oldest first.

    """
    missed = sorted(tick for tick in set(ticks) - known if tick < now - grace)
    name, _, count = policy.partition(":")
    allowed = {"skip": 0, "latest": 1, "backfill": int(count or 0)}[name]
    # One that came later and is not missed, done or just due, is the latest already.
    if name == "latest" and missed and any(missed[-1] < t <= now for t in known.union(ticks)):
        allowed = 0
    first = len(missed) - min(allowed, len(missed))
    return [
        TickDecision(
            tick,
            place >= first,
            f"missed by {lateness(now - tick)}, one of {len(missed)}; "
            f"{'made good' if place >= first else 'skipped'} by missed: {policy}",
        )
        for place, tick in enumerate(missed)
    ]


def lateness(seconds: float) -> str:
    """A span in the one unit that matters."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
