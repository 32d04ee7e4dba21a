"""The ledger's interface: append runs and stage runs, ask what is known under a key."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from posttrain.provenance.ledger.annotations import Annotations
from posttrain.provenance.ledger.compositions import Compositions
from posttrain.provenance.ledger.history import StageHistory
from posttrain.provenance.ledger.processes import is_gone, this_process
from posttrain.provenance.ledger.reading import IS_PROVEN, StageRunReader, annotated
from posttrain.provenance.ledger.records import Run, RunStatus, StageRun
from posttrain.provenance.ledger.store import Params, Row, SqliteStore, Store, insert_rows
from posttrain.provenance.ledger.version import HEAD, ensure_current, stored_version
from posttrain.provenance.ledger.writing import write_stage_runs
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import KeyDigest, canonical_json

_READ = (
    "id,recipe,started,command,ended,status,git_commit,git_dirty,prefect_run_id,overrides,process,"
    f"{annotated('mlflow_run_id', 'runs')} AS mlflow_run_id"
)
_FINISH = (
    "UPDATE runs SET status=:status, ended=:ended,"
    " mlflow_run_id=COALESCE(:mlflow_run_id,mlflow_run_id),"
    " prefect_run_id=COALESCE(:prefect_run_id,prefect_run_id)"
    " WHERE id=:id AND status='running'"
)


class Ledger:
    """Append-only record of every run; only the row of a running run is ever changed.

    Args:
        store: The database.

    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.annotations = Annotations(store)
        """What is said of records afterwards."""
        self.compositions = Compositions(store)
        """What artifacts carry inside them."""
        self._reader = StageRunReader(store)
        self.history = StageHistory(store, self._reader)
        """Questions about stages by name."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back."""
        self.store.close()

    def begin_run(self, run: Run) -> None:
        """Record that this process starts `run`."""
        self.append_run(run, process=this_process())

    def append_run(self, run: Run, *, process: str) -> None:
        """Record a run of any process, as an import does."""
        values = {**vars(run), "overrides": canonical_json(dict(run.overrides)), "process": process}
        with self.store.transaction():
            insert_rows(self.store, "runs", [values])

    def finish_run(
        self,
        run_id: str,
        status: RunStatus,
        ended: float,
        *,
        mlflow_run_id: str | None = None,
        prefect_run_id: str | None = None,
    ) -> None:
        """Close the row of a running run; ids that are None stay as they were."""
        values = {"id": run_id, "status": status, "ended": ended}
        ids = {"mlflow_run_id": mlflow_run_id, "prefect_run_id": prefect_run_id}
        with self.store.transaction():
            self.store.execute_many(_FINISH, [{**values, **ids}])

    def record(self, *stage_runs: StageRun) -> None:
        """Append stage runs in one transaction: all of them or none."""
        if stage_runs:
            write_stage_runs(self.store, stage_runs)

    def succeeded(self, key: KeyDigest) -> StageRun | None:
        """The newest success under `key`. Newest means recorded last: clocks go backwards."""
        found = self._reader.where(f"key=:key AND {IS_PROVEN}", {"key": key}, limit=1)
        return found[0] if found else None

    def runs(self, limit: int | None = None) -> list[Run]:
        """Runs, newest first."""
        return self._runs("1=1", {}, limit=limit)

    def run(self, run_id: str) -> Run | None:
        """One run by its exact id."""
        found = self._runs("id=:id", {"id": run_id}, limit=1)
        return found[0] if found else None

    def stage_runs(self, run_id: str) -> list[StageRun]:
        """Stage runs of one run, in the order in which they were recorded."""
        return self._reader.where("run_id=:run_id", {"run_id": run_id})[::-1]

    def stage_run(self, stage_run_id: str) -> StageRun | None:
        """One stage run by its exact id."""
        found = self._reader.where("id=:id", {"id": stage_run_id}, limit=1)
        return found[0] if found else None

    def every_stage_run(self) -> Iterator[StageRun]:
        """All stage runs in the order in which they were recorded, read a thousand at a time."""
        last = 0
        while rows := self.store.query(
            "SELECT num FROM stage_runs WHERE num > :last ORDER BY num LIMIT 1000", {"last": last}
        ):
            bounds = {"low": last, "high": rows[-1].num}
            yield from self._reader.where("num > :low AND num <= :high", bounds)[::-1]
            last = rows[-1].num

    def _runs(self, condition: str, params: Params, *, limit: int | None) -> list[Run]:
        tail = f" LIMIT {limit}" if limit is not None else ""
        sql = f"SELECT {_READ} FROM runs WHERE {condition} ORDER BY num DESC{tail}"
        return [_run(row) for row in self.store.query(sql, params)]


def open_ledger(url_or_path: str | Path, *, create: bool = True) -> Ledger:
    """Open, create or migrate the ledger at a path, a `sqlite:///` URL or a PostgreSQL URL."""
    store = open_store(str(url_or_path), create=create)
    try:
        ensure_current(store)
    except BaseException:
        store.close()
        raise
    return Ledger(store)


@contextmanager
def read_ledger(path: Path) -> Iterator[Ledger]:
    """Open the ledger file of another project, which a former posttrain may still use.

    Args:
        path: The file. Where its schema is an older one, it stays so, and a copy is read.

    Yields:
        The ledger; what is written to it may be lost.

    """
    with ExitStack() as opened:
        store = opened.enter_context(closing(SqliteStore(path)))
        if stored_version(store) not in (None, HEAD):
            folder = opened.enter_context(TemporaryDirectory(prefix="posttrain-ledger-"))
            path = Path(folder) / path.name
            store.copy_to(path)
        yield opened.enter_context(open_ledger(path, create=False))


def open_store(url: str, *, create: bool = True) -> Store:
    """Connect to a path, a `sqlite:///` URL, or any other URL that SQLAlchemy knows.

    Args:
        url: Where the database is.
        create: True makes a SQLite file that is not there.

    Returns:
        The open database.

    Raises:
        UserError: There is no file and none shall be made, or the server cannot be reached.

    """
    if "://" not in url or url.startswith("sqlite:"):
        path = Path(url.removeprefix("sqlite:///"))
        if not create and not path.exists():
            raise UserError(f"there is no ledger at {path}; run the recipe first: posttrain run")
        return SqliteStore(path)
    # Importing SQLAlchemy takes longer than all else that a command does that changes nothing.
    from posttrain.provenance.ledger.server import ServerStore

    return ServerStore(url)


def _run(row: Row) -> Run:
    fields = row._asdict()
    process = fields.pop("process")
    killed = row.status == "running" and is_gone(process)
    return Run(
        **{
            **fields,
            "status": "killed" if killed else row.status,
            "git_dirty": bool(row.git_dirty),
            "overrides": json.loads(row.overrides),
        }
    )
