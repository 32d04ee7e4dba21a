"""The ledger's interface: append runs and stage runs, ask what is known under a key."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from posttrain.provenance.ledger.annotations import RECIPE_FOLDER, Annotations
from posttrain.provenance.ledger.processes import is_gone, this_process
from posttrain.provenance.ledger.reading import (
    IS_DONE,
    IS_PROVEN,
    StageRunReader,
    annotated,
    read_edges,
)
from posttrain.provenance.ledger.records import (
    ArtifactRecord,
    Composition,
    Run,
    RunStatus,
    StageRun,
    worked_seconds,
)
from posttrain.provenance.ledger.store import Params, Row, SqliteStore, Store, insert_rows, query_in
from posttrain.provenance.ledger.version import HEAD, ensure_current, stored_version
from posttrain.provenance.ledger.writing import Derivation, intern_derivations, write_stage_runs
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import KeyDigest, canonical_json

_OF_RECIPE = "run_id IN (SELECT id FROM runs WHERE recipe=:recipe)"

_ALL = "SELECT derivation FROM compositions ORDER BY num"
_OF_WHOLES = (
    "SELECT c.num,c.derivation FROM compositions c"
    " JOIN edges e ON e.derivation=c.derivation AND e.direction=1"
    " JOIN artifacts a ON a.num=e.artifact WHERE a.digest IN ({values})"
)

_READ = (
    "id,recipe,started,command,ended,status,git_commit,git_dirty,prefect_run_id,overrides,process,"
    "actor,"
    f"{annotated('mlflow_run_id', 'runs')} AS mlflow_run_id"
)
_FINISH = (
    "UPDATE runs SET status=:status, ended=:ended,"
    " mlflow_run_id=COALESCE(:mlflow_run_id,mlflow_run_id),"
    " prefect_run_id=COALESCE(:prefect_run_id,prefect_run_id)"
    " WHERE id=:id AND status='running'"
)


class StageHistory:
    """Questions about stages by name, whatever their keys."""

    def __init__(self, store: Store, reader: StageRunReader) -> None:
        self._store = store
        self._reader = reader

    def latest(self, stage: str, recipe: str | None = None) -> StageRun | None:
        """Find the stage run that last put outputs of a stage in place, reused ones included.

        Args:
            stage: Name of the stage.
            recipe: Name of the recipe whose runs alone count; None for any.

        Returns:
            The stage run; None where there is none.

        """
        condition = f"stage=:stage AND {IS_DONE}"
        if recipe is not None:
            condition += f" AND {_OF_RECIPE}"
        found = self._reader.where(condition, {"stage": stage, "recipe": recipe}, limit=1)
        return found[0] if found else None

    def executions(self, stage: str, recipe: str, *, limit: int) -> list[StageRun]:
        """Read the stage runs that really executed a stage, failed ones included.

        Args:
            stage: Its name in the flow.
            recipe: Path of the recipe.
            limit: Most runs.

        Returns:
            Newest first.

        """
        condition = f"stage=:stage AND status IN ('succeeded','failed') AND {_OF_RECIPE}"
        return self._reader.where(condition, {"stage": stage, "recipe": recipe}, limit=limit)

    def executed(self, key: KeyDigest) -> StageRun | None:
        """Find the stage run that last executed under a key, and did not restore or reuse.

        Args:
            key: Of the stage.

        Returns:
            The stage run; None where none is recorded.

        """
        found = self._reader.where("key=:key AND status='succeeded'", {"key": key}, limit=1)
        return found[0] if found else None

    def durations(self, stages: Sequence[str], recipe: str | None = None) -> dict[str, float]:
        """Look up how long the last execution of each stage took; see `StageRun.seconds`.

        Args:
            stages: Names of stages.
            recipe: Count its own executions alone: another one's stage may be of any size.

        Returns:
            Seconds by stage; one that was never executed is absent.

        """
        own = "" if recipe is None else " AND r.recipe=:recipe"
        sql = (
            "SELECT stage,started,ended,timings FROM stage_runs WHERE num IN (SELECT MAX(s.num)"
            " FROM stage_runs s LEFT JOIN runs r ON r.id=s.run_id WHERE s.stage IN ({values})"
            f" AND s.status='succeeded'{own} GROUP BY s.stage)"
        )
        fixed = {} if recipe is None else {"recipe": recipe}
        rows = query_in(self._store, sql, list(stages), fixed=fixed)
        return {
            row.stage: worked_seconds(row.started, row.ended, json.loads(row.timings))
            for row in rows
        }


class Compositions:
    """The parts of artifacts, as recorded; append-only."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, *compositions: Composition) -> None:
        """Append compositions, all or none; what is known already stays as it was."""
        if not compositions:
            return
        derivations = [
            Derivation(f"parts:{each.whole.digest}", each.parts, (each.whole,))
            for each in compositions
        ]
        with self._store.transaction():
            numbers = intern_derivations(self._store, derivations)
            rows = [{"derivation": number} for number in numbers]
            insert_rows(self._store, "compositions", rows, conflict="DO NOTHING")

    def all(self) -> list[Composition]:
        """Every artifact with parts, oldest first."""
        return self._read(self._store.column(_ALL))

    def parts_of(self, digests: Sequence[str]) -> dict[str, tuple[ArtifactRecord, ...]]:
        """Parts of each of these artifacts, as recorded last; those without any are absent."""
        rows = sorted(query_in(self._store, _OF_WHOLES, digests))
        return {each.whole.digest: each.parts for each in self._read([r.derivation for r in rows])}

    def _read(self, derivations: Sequence[int]) -> list[Composition]:
        edges = read_edges(self._store, derivations)
        return [Composition(edges[each][1][0], edges[each][0]) for each in derivations]


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

    def begin_run(self, run: Run, *, folder: str | None = None) -> None:
        """Record that this process starts a run.

        Args:
            run: Still without an end.
            folder: Of its recipe, from the project's root; None leaves it to the recipe's name.

        """
        self.append_run(run, process=this_process())
        if folder is not None:
            self.annotations.note(RECIPE_FOLDER, {run.id: folder})

    def append_run(self, run: Run, *, process: str) -> None:
        """Record a run of any process, as an import does.

        Args:
            run: The run, ended or not.
            process: `host pid birth` of the process that makes it, by which a killed one is known.

        """
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
        """Close the row of a running run.

        Args:
            run_id: Of the ledger.
            status: How it ended.
            ended: When, in seconds since 1970.
            mlflow_run_id: Of the tracker; None leaves what is there.
            prefect_run_id: Of the Prefect flow run; None leaves what is there.

        """
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
    """Open, create or migrate a ledger.

    Args:
        url_or_path: A path, a `sqlite:///` URL or a PostgreSQL URL.
        create: False where a ledger that is missing is an error.

    Returns:
        The ledger, in today's schema.

    """
    store = open_store(str(url_or_path), create=create)
    try:
        ensure_current(store)
    # An interrupt, too, must give back the connection and its lock.
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
