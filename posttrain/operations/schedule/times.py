"""The instants that a cron line names, by the very code that Prefect's server schedules with.

A second opinion on daylight saving would make ticks that Prefect never runs, and runs without a
tick. Prefect's rules: a time that the clock skips runs an hour early by the wall clock, a time that
comes twice runs the first time.
"""

import asyncio
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo

_AHEAD = 1000
_HOUR = 3600
_SPANS = (60, 24, 31, 12, 7)


class Clock(NamedTuple):
    """A cron line and whose wall clock it is of."""

    cron: str
    timezone: str


def clock_of(cron: str, timezone: str) -> Clock:
    """Choose the clock by which Prefect is to compute the instants of a line.

    A line that names no hour runs every hour, also in the one that comes twice in autumn. Prefect
    runs a time that comes twice once only, and was silent for an hour there; in UTC none does.
    Where a zone is not whole hours away from UTC, its own clock stays.
    """
    hourly = cron == "@hourly" or cron.split()[1:] == ["*"] * 4
    noons = [datetime(2026, month, 1, 12, tzinfo=ZoneInfo(timezone)) for month in (1, 7)]
    whole = all((noon.utcoffset() or timedelta()).seconds % _HOUR == 0 for noon in noons)
    return Clock(cron, "UTC" if hourly and whole else timezone)


def ticks_between(clock: Clock, after: float, until: float) -> list[float]:
    """Instants in (after, until], oldest first, in UTC epoch seconds."""
    return list(takewhile(lambda tick: tick <= until, _from(clock, after)))


def next_ticks(clock: Clock, after: float, count: int) -> list[float]:
    """The `count` instants that follow `after`."""
    return list(islice(_from(clock, after), count))


def require_cron(text: str) -> str:
    """Check a line by computing with it what Prefect will; raise ValueError with a sentence."""
    fields = text.split()
    if len(fields) != 5 and not re.fullmatch(
        r"@(hourly|daily|midnight|weekly|monthly|yearly)", text
    ):
        raise ValueError(
            f"'{text}' is not five fields (minute hour day month weekday) nor one such as @daily"
        )
    for field, span in zip(fields, _SPANS, strict=False):
        for step in re.findall(r"/(\d+)", field):
            if int(step) >= span:
                raise ValueError(f"'{text}' asks for every {step}th of {span}; use a smaller step")
    try:
        coming = next_ticks(Clock(text, "UTC"), 0.0, 3)
    except Exception as error:  # noqa: BLE001 (of croniter and of pydantic)
        reason = "no day matches it" if "next date" in str(error) else "Prefect cannot read it"
        raise ValueError(f"'{text}' is no time: {reason}; see `man 5 crontab`") from None
    if not coming:
        raise ValueError(f"'{text}' never comes; see `man 5 crontab`")
    return text


def _from(clock: Clock, after: float) -> Iterator[float]:
    from prefect.server.schemas.schedules import CronSchedule

    cron = CronSchedule(cron=clock.cron, timezone=clock.timezone)
    last, count = after, 3
    while True:
        start = datetime.fromtimestamp(last, UTC) + timedelta(microseconds=1)
        found = sorted(moment.timestamp() for moment in asyncio.run(cron.get_dates(count, start)))
        fresh = [tick for tick in found if tick > last]
        if not fresh:
            return
        yield from fresh
        last, count = fresh[-1], _AHEAD
