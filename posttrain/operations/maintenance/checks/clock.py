"""The clock: after all that was recorded, and the same here and on servers and databases."""

import time
from collections.abc import Iterator

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.provenance.ledger.store import Store
from posttrain.stage.formatting import duration

SKEW_SECONDS = 5.0
_SET = "set the clock: timedatectl set-ntp true"
_LAST = (
    "SELECT MAX(started) FROM runs",
    "SELECT MAX(ended) FROM runs",
    "SELECT MAX(ended) FROM stage_runs",
)


def clock(place: CheckScope) -> Iterator[Finding]:
    """Now is after the ledger's last record, and its server has the same time."""
    now = Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z"))
    yield from [*_against_ledger(place)] or [now]


def skew(whose: str, theirs: float) -> Iterator[Finding]:
    """A complaint where another clock is off."""
    ahead = theirs - time.time()
    if abs(ahead) > SKEW_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        says = f"the clock of {whose} is {duration(abs(ahead))} {way} this machine's"
        yield Finding("clock", "warning", says, f"{_SET}, on both machines")


def _against_ledger(place: CheckScope) -> Iterator[Finding]:
    with ledger_as_it_is(place.project) as ledger:
        if ledger is None:
            return
        last = _last(ledger.store)
        if ledger.store.dialect == "postgresql":
            now = ledger.store.column("SELECT EXTRACT(EPOCH FROM clock_timestamp())")[0]
            yield from skew("the ledger's server", float(now))
    if last > time.time() + SKEW_SECONDS:
        says = f"it went back: the ledger's last record is {duration(last - time.time())} from now"
        yield Finding("clock", "broken", says, f"{_SET}, here or where the ledger was written")


def _last(store: Store) -> float:
    times = [store.column(sql)[0] for sql in _LAST]
    return max((each for each in times if each is not None), default=0.0)
