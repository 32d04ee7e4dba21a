"""The instants that a cron line names, by the very code that Prefect's server schedules with.

A second opinion on daylight saving would make ticks that Prefect never runs, and runs without a
tick. Prefect's rules: a time that the clock skips runs an hour early by the wall clock, a time that
comes twice runs the first time.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from posttrain.operations.schedule.schedule import CronSchedule

_AHEAD = 500


def ticks_between(schedule: CronSchedule, after: float, until: float) -> list[float]:
    """Instants of `schedule` in (after, until], oldest first, in UTC epoch seconds."""
    ticks: list[float] = []
    for tick in _from(schedule, after):
        if tick > until:
            break
        ticks.append(tick)
    return ticks


def next_ticks(schedule: CronSchedule, after: float, count: int) -> list[float]:
    """The `count` instants that follow `after`."""
    return list(islice(_from(schedule, after), count))


def is_tick(schedule: CronSchedule, moment: float) -> bool:
    """Return whether the schedule, as it is now, names this instant."""
    return moment in ticks_between(schedule, moment - 1, moment)


def _from(schedule: CronSchedule, after: float) -> Iterator[float]:
    from prefect.server.schemas.schedules import CronSchedule

    cron = CronSchedule(cron=schedule.cron, timezone=schedule.timezone)
    last, count = after, 2
    while True:
        start = datetime.fromtimestamp(last, UTC) + timedelta(microseconds=1)
        found = sorted(moment.timestamp() for moment in asyncio.run(cron.get_dates(count, start)))
        fresh = [tick for tick in found if tick > last]
        if not fresh:
            return
        yield from fresh
        last, count = fresh[-1], _AHEAD
