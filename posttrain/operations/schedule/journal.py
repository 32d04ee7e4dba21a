"""The journal: every tick of every schedule, what was decided, what ran and how it ended.

A tick is one row, and (schedule, due) is unique: that is what "none doubled" rests on. Its status
changes by compare-and-set only, so that two workers, or a worker and the run that it lost, cannot
both have it. Notes are appended and never changed.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, create_engine, event, insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError

from posttrain.operations.schedule.schedule import CronSchedule
from posttrain.operations.schedule.tables import METADATA, NOTES, SCHEDULES, TICKS
from posttrain.provenance.ledger.migrate import driver_url
from posttrain.provenance.ledger.server import patient
from posttrain.stage.errors import UserError, masked, nearest

ENVIRONMENT = "POSTTRAIN_SCHEDULES"
BUSY_SECONDS = 60.0
# waiting: to be started . running: a process has it . the rest: over.
LIVE = ("waiting", "running")
_WRITER_LOCK = 0x706F7375


@dataclass(frozen=True)
class Tick:
    """One row of the journal. Times in UTC seconds."""

    num: int
    schedule: str
    due: float
    kind: str
    status: str
    reason: str
    attempt: int = 0
    process: str | None = None
    flow_run_id: str | None = None
    run_id: str | None = None
    started: float | None = None
    ended: float | None = None
    not_before: float | None = None
    frozen: str | None = None
    settled: bool = True

    @property
    def id(self) -> str:
        """Name of the tick wherever it is known by one: also the key that Prefect runs it by."""
        return f"posttrain:{self.schedule}@{self.due:.6f}"

    def frozen_values(self) -> dict[str, Any]:
        """What the run froze when it began; empty before that."""
        return dict(json.loads(self.frozen)) if self.frozen else {}


class Journal:
    """Open with `open_journal`; safe to use from several processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.dispose()

    @property
    def url(self) -> str:
        """Where the journal is, for a child process."""
        return self._engine.url.render_as_string(hide_password=False)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that no other writer overlaps."""
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.execute(text("BEGIN IMMEDIATE"))
            else:
                connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})"))
            yield connection

    def put(self, schedule: CronSchedule) -> None:
        """Declare a schedule or change it."""
        body = json.dumps(schedule.as_values(), sort_keys=True)
        values = {"body": body, "removed": False}
        with self.writing() as connection:
            done = connection.execute(
                update(SCHEDULES).where(SCHEDULES.c.name == schedule.name).values(**values)
            )
            if not done.rowcount:
                connection.execute(insert(SCHEDULES).values(name=schedule.name, **values))

    def remove(self, name: str) -> None:
        """Forget a schedule; its ticks stay in the history."""
        with self.writing() as connection:
            connection.execute(
                update(SCHEDULES).where(SCHEDULES.c.name == name).values(removed=True)
            )

    def schedules(self) -> list[CronSchedule]:
        """Every schedule that is not removed, by name."""
        query = select(SCHEDULES.c.body).where(~SCHEDULES.c.removed).order_by(SCHEDULES.c.name)
        with self._engine.connect() as connection:
            return [
                CronSchedule.from_values(json.loads(body)) for (body,) in connection.execute(query)
            ]

    def schedule(self, name: str) -> CronSchedule:
        """One schedule, or a sentence with the nearest name."""
        known = {schedule.name: schedule for schedule in self.schedules()}
        if name not in known:
            hint = nearest(name, known) or "; see posttrain schedule list"
            raise UserError(f"there is no schedule '{name}'{hint}")
        return known[name]

    def deployed(self) -> dict[str, tuple[str | None, bool]]:
        """What was last sent to the server of each schedule, and whether it is removed."""
        query = select(SCHEDULES.c.name, SCHEDULES.c.deployed, SCHEDULES.c.removed)
        with self._engine.connect() as connection:
            return {name: (told, gone) for name, told, gone in connection.execute(query)}

    def set_deployed(self, name: str, told: str | None) -> None:
        """Remember what was sent to the server."""
        with self.writing() as connection:
            connection.execute(
                update(SCHEDULES).where(SCHEDULES.c.name == name).values(deployed=told)
            )

    def add(self, schedule: str, due: float, *, kind: str, status: str, reason: str) -> Tick | None:
        """A new tick; None if this one is known already."""
        row = {"schedule": schedule, "due": due, "kind": kind, "status": status, "reason": reason}
        try:
            with self.writing() as connection:
                done = connection.execute(insert(TICKS).values(**row))
                (num,) = done.inserted_primary_key or (0,)
                _note(connection, num, f"{status}: {reason}")
        except IntegrityError:
            return None
        return Tick(num, schedule, due, kind, status, reason)

    def change(
        self, tick: Tick, values: Mapping[str, Any], *, note: str | None = None
    ) -> Tick | None:
        """Set `values` if the row still has the status, attempt and process of `tick`, else None.

        The note says what happened; without one the row's reason does.
        """
        same = (
            (TICKS.c.num == tick.num)
            & (TICKS.c.status == tick.status)
            & (TICKS.c.attempt == tick.attempt)
            & TICKS.c.process.is_not_distinct_from(tick.process)
        )
        with self.writing() as connection:
            if not connection.execute(update(TICKS).where(same).values(**values)).rowcount:
                return None
            said = note or (f"{values['status']}: {values['reason']}" if "reason" in values else "")
            if said:
                _note(connection, tick.num, said)
        return Tick(**{**vars(tick), **values})

    def note(self, tick: Tick, said: str) -> None:
        """Append a line to the history of a tick."""
        with self.writing() as connection:
            _note(connection, tick.num, said)

    def tick(self, num: int) -> Tick:
        """One tick by its number."""
        (found,) = self._ticks(TICKS.c.num == num)
        return found

    def find(self, schedule: str, due: float) -> Tick | None:
        """The tick of an instant."""
        found = self._ticks((TICKS.c.schedule == schedule) & (TICKS.c.due == due))
        return found[0] if found else None

    def of_flow_run(self, flow_run_id: str) -> Tick | None:
        """The tick that a Prefect flow run was made for."""
        found = self._ticks(TICKS.c.flow_run_id == flow_run_id)
        return found[0] if found else None

    def live(self) -> list[Tick]:
        """Ticks that wait or run, and failures that wait for what follows; oldest first."""
        return self._ticks(TICKS.c.status.in_(LIVE) | ~TICKS.c.settled)[::-1]

    def running(self, schedule: str) -> list[Tick]:
        """Ticks of a schedule that a process has."""
        return self._ticks((TICKS.c.schedule == schedule) & (TICKS.c.status == "running"))

    def known(self, schedule: str, since: float) -> frozenset[float]:
        """Instants of a schedule that have a row."""
        query = select(TICKS.c.due).where(TICKS.c.schedule == schedule, TICKS.c.due >= since)
        with self._engine.connect() as connection:
            return frozenset(due for (due,) in connection.execute(query))

    def last_scheduled(self, schedule: str) -> float | None:
        """The latest instant of the clock's own that has a row."""
        found = self._ticks((TICKS.c.schedule == schedule) & (TICKS.c.kind == "scheduled"), limit=1)
        return found[0].due if found else None

    def history(self, schedule: str | None = None, *, limit: int | None = None) -> list[Tick]:
        """Ticks by their time, newest first."""
        condition = TICKS.c.schedule == schedule if schedule else TICKS.c.num > 0
        return self._ticks(condition, limit=limit)

    def last_success(self, schedule: str) -> Tick | None:
        """The newest tick of a schedule that ran to its end."""
        condition = (TICKS.c.schedule == schedule) & (TICKS.c.status == "succeeded")
        found = self._ticks(condition, limit=1)
        return found[0] if found else None

    def story(self, tick: Tick) -> list[tuple[float, str]]:
        """When what happened to a tick, in order."""
        query = select(NOTES.c.at, NOTES.c.text).where(NOTES.c.tick == tick.num)
        with self._engine.connect() as connection:
            return [(at, said) for at, said in connection.execute(query.order_by(NOTES.c.num))]

    def _ticks(self, condition: Any, *, limit: int | None = None) -> list[Tick]:
        query = select(TICKS).where(condition).order_by(TICKS.c.due.desc(), TICKS.c.num.desc())
        with self._engine.connect() as connection:
            rows = connection.execute(query.limit(limit)).mappings()
            return [Tick(**{**row, "settled": bool(row["settled"])}) for row in rows]


def _note(connection: Connection, tick: int, said: str) -> None:
    connection.execute(insert(NOTES).values(tick=tick, at=time.time(), text=said))


def journal_location(root: Path) -> str:
    """URL of the journal of the project at `root`; the environment overrides it."""
    return os.environ.get(ENVIRONMENT) or f"sqlite:///{root / '.posttrain' / 'schedules.db'}"


def open_journal(location: str) -> Journal:
    """Open the journal at an SQLite or PostgreSQL URL, made if it is not there."""
    if location.startswith("sqlite:///"):
        Path(location.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(location, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _prepare)
    else:
        engine = patient(create_engine(driver_url(location), pool_pre_ping=True))
    journal = Journal(engine)
    try:
        with journal.writing() as connection:
            METADATA.create_all(connection)
    except OperationalError as error:
        reason = str(error.orig).splitlines()[0]
        raise UserError(
            f"the schedule journal {masked(location)} cannot be opened: {reason}; "
            "check that its database is there and can be written"
        ) from None
    return journal


def _prepare(connection: Any, _record: Any) -> None:
    # The driver must not begin transactions of its own: ours begin IMMEDIATE.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode=WAL")
