"""The notes: what was due, what was decided about it and why, what ran and how it ended.

Notes are appended and never changed. What Prefect knows may be lost with its database; these say
what is still to be made good. A claim is unique: by it an attempt begins once and ends once,
whoever else believes to have it.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    Row,
    Select,
    String,
    Table,
    Text,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    text,
)  # fmt: skip
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError

from posttrain.provenance.ledger.dialects import WRITER_LOCK
from posttrain.provenance.ledger.migrate import driver_url
from posttrain.provenance.ledger.server import patient
from posttrain.stage.errors import UserError, first_line, masked
from posttrain.stage.write_ahead import BUSY_SECONDS, write_ahead

ENVIRONMENT = "POSTTRAIN_SCHEDULES"
_METADATA = MetaData()
# waiting: to be started . running: a process has it . the rest: how it ended.
_STATUSES = (
    "waiting", "running", "succeeded", "failed", "crashed", "unchanged", "skipped", "cancelled",
)  # fmt: skip
# A clock that was ahead wrote what is not yet: a minute later than now is not believed.
_AHEAD_SECONDS = 60.0

NOTES = Table(
    "decisions",
    _METADATA,
    Column("num", Integer, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("schedule", String(80), nullable=False),
    # Of the instant that the note is about, and the last of those that it is about; 0: of none.
    Column("due", Float, nullable=False),
    Column("until", Float, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("event", String(16), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("said", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("claim", String(200), unique=True),
    Index("decisions_by_due", "schedule", "due", "num"),
)


@dataclass(frozen=True)
class Tick:
    """One instant of a schedule, or several that were skipped together, as its notes add up."""

    schedule: str
    due: float
    until: float
    kind: str = "scheduled"
    status: str = "waiting"
    reason: str = ""
    attempt: int = 0
    over: bool = False
    """Nothing more is to be done about it."""
    started: float | None = None
    ended: float | None = None
    num_failed: int = 0
    num_crashed: int = 0
    data: dict[str, Any] = field(default_factory=dict)
    story: tuple[tuple[float, str], ...] = ()

    def after(self, row: Row[Any]) -> "Tick":
        """What it is once a further note is read."""
        data = {**self.data, **json.loads(row.data)}
        line = f"attempt {row.attempt} starts" if row.event == "running" else row.said
        if row.event in _STATUSES[2:]:
            line = f"{row.event}: {row.said}"
        story = (*self.story, (row.at, line))
        if row.event not in _STATUSES:
            return replace(self, data=data, story=story, over=self.over or row.event == "over")
        failed, crashed = row.event == "failed", row.event == "crashed"
        return replace(
            self,
            kind=row.kind,
            status=row.event,
            reason=row.said or self.reason,
            attempt=max(self.attempt, row.attempt),
            over=row.event in _STATUSES[2:] and not (failed or crashed),
            started=row.at if row.event == "running" else self.started,
            ended=row.at if row.event in _STATUSES[2:] else None,
            num_failed=self.num_failed + failed,
            num_crashed=self.num_crashed + crashed,
            data=data,
            story=story,
        )


@dataclass(frozen=True)
class Declaration:
    """What was declared last under a name, and since when its instants count."""

    name: str
    text: str
    since: float
    paused: bool = False
    paused_in_prefect: bool = False
    """What was seen there last: a difference is somebody's change in its pages."""


class ScheduleNotes:
    """Open with `open_notes`; safe to use from several processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def url(self) -> str:
        """Where the notes are, for a child process."""
        return self._engine.url.render_as_string(hide_password=False)

    @cached_property
    def id(self) -> str:
        """Name of these notes, wherever they lie."""
        self.add("", 0.0, "made", "", claim="made", id=uuid4().hex)
        return str(json.loads(self._rows(NOTES.c.claim == "made")[0].data)["id"])

    def add(  # noqa: PLR0913
        self,
        schedule: str,
        due: float,
        what: str,
        said: str,
        *,
        until: float | None = None,
        kind: str = "scheduled",
        attempt: int = 0,
        claim: str | None = None,
        **data: Any,
    ) -> bool:
        """Append a note; False where its claim was made before, and then nothing is written."""
        values = {
            "at": time.time(), "schedule": schedule, "due": due, "until": until or due,
            "kind": kind, "event": what, "attempt": attempt, "said": said,
            "data": json.dumps(data), "claim": claim,
        }  # fmt: skip
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(NOTES).values(**values))
        except IntegrityError:
            return False
        return True

    def about(self, tick: Tick, what: str, said: str, *, claim: str = "", **data: Any) -> bool:
        """Append a note about a tick, with the attempt that it is at."""
        claimed = f"{tick.schedule}@{tick.due:.6f}#{tick.attempt}{claim}" if claim else None
        return self.add(tick.schedule, tick.due, what, said, until=tick.until, kind=tick.kind,
                        attempt=tick.attempt, claim=claimed, **data)  # fmt: skip

    def cancel(self, tick: Tick) -> bool:
        """Take the end of an attempt, or the beginning of the next; False where it was taken."""
        begun = tick.status == "running"
        taken = tick if begun else replace(tick, attempt=tick.attempt + 1)
        return self.about(taken, "cancelled", "cancelled by hand", claim="!" if begun else "begins")

    def tick(self, schedule: str, due: float) -> Tick | None:
        """The tick of an instant, if there is a note of it."""
        here = (NOTES.c.schedule == schedule) & (NOTES.c.due == due)
        return next(iter(_ticks(self._rows(here))), None)

    def live(self) -> list[Tick]:
        """Ticks that wait or run, and failures that wait for what follows; oldest first."""
        telling = NOTES.c.event.in_((*_STATUSES, "over")) & (NOTES.c.due > 0)
        last = select(func.max(NOTES.c.num)).where(telling).group_by(NOTES.c.schedule, NOTES.c.due)
        open_ = NOTES.c.event.in_(("waiting", "running", "failed", "crashed"))
        query = select(NOTES.c.schedule, NOTES.c.due).where(NOTES.c.num.in_(last), open_)
        ticks = [self.tick(row.schedule, row.due) for row in self._read(query)]
        return sorted((each for each in ticks if each), key=lambda tick: tick.due)

    def known(self, schedule: str, after: float, ticks: Iterable[float]) -> set[float]:
        """Those of `ticks`, all later than `after`, of which there is a note to be believed."""
        telling = NOTES.c.event.in_(_STATUSES) & (NOTES.c.at < time.time() + _AHEAD_SECONDS)
        here = (NOTES.c.schedule == schedule) & (NOTES.c.until >= after) & telling
        query = select(NOTES.c.due, NOTES.c.until).where(here).distinct()
        spans = [(row.due, row.until) for row in self._read(query)]
        singles = {due for due, until in spans if due == until}
        ranges = [(due, until) for due, until in spans if due != until]
        return {t for t in ticks if t in singles or any(a <= t <= b for a, b in ranges)}

    def watermark(self, schedule: str) -> float:
        """The latest instant of the clock's own that has a note; 0 where none has."""
        now = time.time()
        here = (NOTES.c.schedule == schedule) & (NOTES.c.kind == "scheduled") & (NOTES.c.due > 0)
        told = here & (NOTES.c.until <= now) & (NOTES.c.at < now + _AHEAD_SECONDS)
        return self._read(select(func.max(NOTES.c.until)).where(told))[0][0] or 0.0

    def history(self, schedule: str | None = None, *, limit: int = 20) -> list[Tick]:
        """The newest ticks by their time, newest first."""
        here = (NOTES.c.due > 0) & ((NOTES.c.schedule == schedule) if schedule else True)
        query = select(NOTES.c.due).where(here).distinct().order_by(NOTES.c.due.desc())
        dues = [row.due for row in self._read(query.limit(limit))]
        with self._engine.connect() as connection:
            old = _of_format_1(connection, schedule, limit)
        found = _ticks(self._rows(here & (NOTES.c.due >= min(dues)))) if dues else []
        return sorted([*found, *old], key=lambda tick: -tick.due)[:limit]

    def last_success(self, schedule: str) -> Tick | None:
        """The newest tick of a schedule that ran to its end."""
        here = (NOTES.c.schedule == schedule) & (NOTES.c.event == "succeeded")
        due = self._read(select(func.max(NOTES.c.due)).where(here))[0][0]
        return None if due is None else self.tick(schedule, due)

    def declarations(self) -> dict[str, Declaration]:
        """Every schedule that is declared, by name."""
        found: dict[str, Declaration] = {}
        for row in self._rows(NOTES.c.due == 0):
            data = json.loads(row.data)
            told, shown = data.get("declaration"), data.get("paused_in_prefect")
            before = found.get(row.schedule)
            if row.event == "removed":
                found.pop(row.schedule, None)
            elif told is not None:
                since = before.since if before and row.event == "changed" else row.at
                known = before or Declaration(row.schedule, told, since)
                found[row.schedule] = replace(known, text=told, since=since)
            elif before is not None and row.event in ("paused", "resumed"):
                since = row.at if row.event == "resumed" else before.since
                found[row.schedule] = replace(before, paused=row.event == "paused", since=since)
            if shown is not None and row.schedule in found:
                found[row.schedule] = replace(found[row.schedule], paused_in_prefect=shown)
        return found

    def _rows(self, condition: Any) -> Sequence[Row[Any]]:
        return self._read(select(NOTES).where(condition).order_by(NOTES.c.num))

    def _read(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(query).all()


def _ticks(rows: Iterable[Row[Any]]) -> list[Tick]:
    found: dict[tuple[str, float], Tick] = {}
    for row in rows:
        key = (row.schedule, row.due)
        found[key] = found.get(key, Tick(row.schedule, row.due, row.until)).after(row)
    return list(found.values())


def _of_format_1(connection: Connection, schedule: str | None, limit: int) -> list[Tick]:
    """What 0.1 kept in tables of its own: read, and never written."""
    if not inspect(connection).has_table("ticks"):
        return []
    where = "WHERE schedule = :schedule" if schedule else ""
    query = f"SELECT * FROM ticks {where} ORDER BY due DESC LIMIT {limit:d}"
    rows = connection.execute(text(query), {"schedule": schedule} if schedule else {}).mappings()
    names = ("schedule", "due", "kind", "status", "reason", "attempt", "started", "ended")
    return [
        Tick(**{name: row[name] for name in names}, until=row["due"], over=True,
             data={"run_id": row["run_id"]}, story=((row["due"], row["reason"]),))
        for row in rows
    ]  # fmt: skip


def _make_tables(engine: Engine) -> None:
    """Make the tables where they are missing; of processes that come at once, one makes them."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(NOTES.name):
            connection.rollback()
            connection.exec_driver_sql(WRITER_LOCK[engine.dialect.name])
            _METADATA.create_all(connection)
            connection.commit()


def has_notes(root: Path) -> bool:
    """Whether there are notes to be read, so that to look makes none.

    Args:
        root: The project.

    Returns:
        True where the file is there, or where the environment names another place.

    """
    return ENVIRONMENT in os.environ or _own_notes(root).is_file()


def _own_notes(root: Path) -> Path:
    return root / ".posttrain" / "schedules.db"


@contextmanager
def open_notes(root: Path) -> Iterator[ScheduleNotes]:
    """Open the notes of the project at `root`, made if they are not there.

    Args:
        root: The project; POSTTRAIN_SCHEDULES names another place, a PostgreSQL URL for example.

    Yields:
        The notes.

    Raises:
        UserError: The database cannot be opened, or is none.

    """
    location = os.environ.get(ENVIRONMENT) or f"sqlite:///{_own_notes(root)}"
    if location.startswith("sqlite:///"):
        Path(location.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(location, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", lambda connection, _: write_ahead(connection))
    else:
        try:
            engine = patient(create_engine(driver_url(location), pool_pre_ping=True))
        except ArgumentError as error:
            raise UserError(
                f"{ENVIRONMENT}: {masked(location)} names no database: {first_line(error)}; write"
                " postgresql://... or sqlite:///..."
            ) from None
    try:
        _make_tables(engine)
        yield ScheduleNotes(engine)
    except DBAPIError as error:
        reason = first_line(error.orig or error)
        raise UserError(
            f"the schedules' notes at {masked(location)} cannot be used: {reason}; "
            "free the disk, or restore a copy (docs/operations.md)"
        ) from None
    finally:
        engine.dispose()
