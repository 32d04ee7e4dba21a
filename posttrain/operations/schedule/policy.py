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
    laid_out: frozenset[float] | set[float] = frozenset(),
    now: float,
    grace: float,
) -> list[TickDecision]:
    """Decide on those of `ticks` that are missed at `now`; others are left to their time.

    Args:
        policy: `skip`, `latest` or `backfill:N`.
        ticks: Instants of the schedule in any order.
        known: Those with a decision already: they are never decided twice, so a clock that is set
            back repeats nothing.
        laid_out: Those with a flow run in Prefect, which starts by itself within its grace.
        now: In UTC epoch seconds, as all instants are.
        grace: A tick is missed once it is older than this, in seconds.

    Returns:
        The decisions, oldest first.

    """
    missed = sorted(tick for tick in set(ticks) - known if tick < now - grace)
    name, _, count = policy.partition(":")
    allowed = {"skip": 0, "latest": 1, "backfill": int(count or 0)}[name]
    because = f"by missed: {policy}"
    # Nothing lays out what is past: such a one will be missed within its grace, and is later.
    coming = {t for t in set(ticks) - known - laid_out if missed and missed[-1] < t <= now}
    if name == "latest" and coming:
        allowed, because = 0, f"{because}, as a later one is made good"
    first = len(missed) - min(allowed, len(missed))
    return [
        TickDecision(
            tick,
            place >= first,
            f"missed by {lateness(now - tick)}, one of {len(missed)}; "
            f"{'made good' if place >= first else 'skipped'} {because}",
        )
        for place, tick in enumerate(missed)
    ]


def lateness(seconds: float) -> str:
    """A span in the one unit that matters."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
