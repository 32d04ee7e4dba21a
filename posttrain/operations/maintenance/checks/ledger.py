"""The ledger: whole, of this version's schema, and not held by anybody for long."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from posttrain.operations.maintenance.checks.finding import MAKE_ROOM, CheckScope, Finding, is_full
from posttrain.provenance.ledger.ledger import open_store
from posttrain.provenance.ledger.location import ledger_location
from posttrain.provenance.ledger.store import Store
from posttrain.provenance.ledger.version import HEAD, REVISIONS, stored_version
from posttrain.stage.errors import UserError, masked

_RESTORE = "restore a copy (docs/operations.md), or import an export: posttrain ledger import"
_HELD_SECONDS = 2.0


def ledger(place: CheckScope) -> Iterator[Finding]:
    """It opens, is whole, can be written, and has the schema of this version."""
    where = ledger_location(place.project)
    if "://" not in where and not Path(where).is_file():
        yield Finding("ledger", "ok", "none yet; the first run makes it")
        return
    try:
        with contextlib.closing(open_store(where, create=False)) as store:
            yield _whole(store, deep=place.deep)
            if not _lacks_room(where):
                yield from _held(store)
    except UserError as error:
        yield Finding("ledger", "broken", str(error), MAKE_ROOM if _lacks_room(where) else _RESTORE)


def _lacks_room(where: str) -> bool:
    """Return whether a ledger that is a file is on a file system that is full."""
    folder = Path(where.removeprefix("sqlite:///")).parent
    return folder.is_dir() and is_full(folder)


def _whole(store: Store, *, deep: bool) -> Finding:
    place = f" in {store.dialect}" if store.dialect != "sqlite" else ""
    version = stored_version(store)
    if version is None:
        says = f"{masked(place.strip() or store.url)} holds no ledger"
        return Finding("ledger", "broken", says, "name another place: POSTTRAIN_LEDGER")
    if version not in REVISIONS:
        says = f"its schema {version} is newer than this posttrain knows ({HEAD})"
        return Finding("ledger", "broken", says, "upgrade posttrain")
    if store.dialect == "sqlite":
        check = "integrity_check" if deep else "quick_check"
        said = store.column(f"PRAGMA {check}(1)")[0]
        if said != "ok":
            says = f"{masked(store.url)} is damaged: {' '.join(str(said).split())}"
            return Finding("ledger", "broken", says, _RESTORE)
    runs = store.column("SELECT COUNT(*) FROM runs")[0]
    if version != HEAD:
        says = f"{runs:,} runs{place} at schema {version}; this version's is {HEAD}"
        return Finding("ledger", "warning", says, "back it up; the next run migrates it")
    return Finding("ledger", "ok", f"{runs:,} runs{place}, schema {version}")


def _held(store: Store) -> Iterator[Finding]:
    """Nobody keeps others from writing: a writer is done in milliseconds."""
    if store.dialect != "sqlite":
        return
    target = store.url.removeprefix("sqlite:///")
    with contextlib.closing(
        sqlite3.connect(target, timeout=_HELD_SECONDS, isolation_level=None)
    ) as probe:
        try:
            probe.execute("BEGIN IMMEDIATE")
            probe.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            says = f"nobody can write to {target}: {error}"
            free = f"fuser {target} names who holds it; stop that; or make it writable"
            yield Finding("ledger", "broken", says, free)
