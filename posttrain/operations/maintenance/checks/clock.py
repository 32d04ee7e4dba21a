"""The clock: after all that was recorded, and the same here, on the files' server, on databases."""

import time
from collections.abc import Iterator

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.provenance.ledger.store import Store
from posttrain.stage.formatting import duration

SKEW_SECONDS = 2.0
_SET = "set the clock: timedatectl set-ntp true"
_LAST = (
    "SELECT MAX(started) FROM runs",
    "SELECT MAX(ended) FROM runs",
    "SELECT MAX(ended) FROM stage_runs",
)


def clock(place: CheckScope) -> Iterator[Finding]:
    """Now is after the ledger's last record; files and the database get today's time."""
    found = [*_against_ledger(place), *_against_files(place)]
    if found:
        yield from found
    else:
        yield Finding("clock", "ok", time.strftime("%Y-%m-%d %H:%M:%S %Z"))


def skew(whose: str, theirs: float, *, coarse: float = 0.0) -> Iterator[Finding]:
    """A complaint where another clock is off; `coarse` are the seconds that it is read to."""
    ahead = theirs - time.time()
    if abs(ahead) > SKEW_SECONDS + coarse:
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


def _against_files(place: CheckScope) -> Iterator[Finding]:
    """A network file system dates files by its server's clock."""
    place.state.mkdir(exist_ok=True)
    probe = place.state / ".clock"
    probe.touch()
    dated = probe.stat().st_mtime
    probe.unlink()
    yield from skew(f"the disk under {place.state}", dated)


def _last(store: Store) -> float:
    times = [store.column(sql)[0] for sql in _LAST]
    return max((each for each in times if each is not None), default=0.0)
