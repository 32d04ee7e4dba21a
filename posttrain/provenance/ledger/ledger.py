"""The ledger's interface: append runs and stage runs, ask what is known under a key."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from posttrain.provenance.ledger.additions import (
    parts_of,
    read_compositions,
    write_annotations,
    write_compositions,
)
from posttrain.provenance.ledger.interning import encode
from posttrain.provenance.ledger.marks import (
    read_releases,
    recalls_in_force,
    write_recalls,
    write_release,
)
from posttrain.provenance.ledger.processes import is_gone, this_process
from posttrain.provenance.ledger.reading import StageRunReader, annotated
from posttrain.provenance.ledger.records import (
    DONE,
    PROVEN,
    ArtifactRecord,
    Composition,
    Recall,
    Release,
    Run,
    RunStatus,
    StageRun,
    Verification,
)
from posttrain.provenance.ledger.store import Params, Row, Store, open_store, query_in
from posttrain.provenance.ledger.verifications import (
    read_verifications,
    verifications_of,
    write_verifications,
)
from posttrain.provenance.ledger.version import ensure_current
from posttrain.provenance.ledger.writing import write_stage_runs

_RUN_COLUMNS = (
    "id,recipe,started,command,ended,status,git_commit,git_dirty,mlflow_run_id,prefect_run_id,"
    "overrides,process"
)
_PROVEN = ",".join(f"'{status}'" for status in PROVEN)
_DONE = ",".join(f"'{status}'" for status in DONE)


@dataclass(frozen=True)
class Conflict:
    """One key under which a stage made different outputs: it is not reproducible.

    `runs` holds the newest stage run of each distinct set of outputs, newest first.
    """

    key: str
    stage: str
    runs: tuple[StageRun, ...]


class Ledger:
    """Append-only record of every run; only the row of a running run is ever changed."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._reader = StageRunReader(store)

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
        values = {**vars(run), "overrides": encode(dict(run.overrides)), "process": process}
        names = ",".join(f":{column}" for column in _RUN_COLUMNS.split(","))
        with self.store.transaction():
            self.store.execute_many(f"INSERT INTO runs ({_RUN_COLUMNS}) VALUES ({names})", [values])

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
        sql = (
            "UPDATE runs SET status=:status, ended=:ended,"
            " mlflow_run_id=COALESCE(:mlflow_run_id,mlflow_run_id),"
            " prefect_run_id=COALESCE(:prefect_run_id,prefect_run_id)"
            " WHERE id=:id AND status='running'"
        )
        values = {"id": run_id, "status": status, "ended": ended}
        ids = {"mlflow_run_id": mlflow_run_id, "prefect_run_id": prefect_run_id}
        with self.store.transaction():
            self.store.execute_many(sql, [{**values, **ids}])

    def record(self, *stage_runs: StageRun) -> None:
        """Append stage runs in one transaction: all of them or none."""
        if stage_runs:
            write_stage_runs(self.store, stage_runs)

    def compose(self, *compositions: Composition) -> None:
        """Append what artifacts carry inside them."""
        if compositions:
            write_compositions(self.store, compositions)

    def compositions(self) -> list[Composition]:
        """Every artifact with parts, oldest first."""
        return read_compositions(self.store)

    def parts_of(self, digests: Sequence[str]) -> dict[str, tuple[ArtifactRecord, ...]]:
        """Parts of each of these artifacts; one of which none are known is absent."""
        return parts_of(self.store, digests)

    def tracked(self, ids: Mapping[str, str]) -> None:
        """Note the MLflow ids of runs and stage runs: those that came late, or of a view made anew.

        The records stay as they are; this is the one thing beside them that may be said again.
        """
        write_annotations(self.store, "mlflow_run_id", ids)

    def succeeded(self, key: str) -> StageRun | None:
        """The newest success under `key`. Newest means recorded last: clocks go backwards."""
        return self.succeeded_many([key]).get(key)

    def succeeded_many(self, keys: Sequence[str]) -> dict[str, StageRun]:
        """The newest success under each of `keys`; keys without one are absent."""
        newest = (
            "num IN (SELECT MAX(num) FROM stage_runs WHERE key IN ({values})"
            f" AND status IN ({_PROVEN}) GROUP BY key)"
        )
        return {run.key: run for run in self._reader.where_in(newest, list(keys))}

    def latest(self, stage: str, recipe: str | None = None) -> StageRun | None:
        """The stage run that last put outputs of `stage` in place, reused ones included."""
        condition = f"stage=:stage AND status IN ({_DONE})"
        if recipe is not None:
            condition += " AND run_id IN (SELECT id FROM runs WHERE recipe=:recipe)"
        found = self._reader.where(condition, {"stage": stage, "recipe": recipe}, limit=1)
        return found[0] if found else None

    def executions(self, stage: str, recipe: str, *, limit: int) -> list[StageRun]:
        """The stage runs that really executed `stage`, failed ones included, newest first."""
        condition = (
            "stage=:stage AND status IN ('succeeded','failed')"
            " AND run_id IN (SELECT id FROM runs WHERE recipe=:recipe)"
        )
        return self._reader.where(condition, {"stage": stage, "recipe": recipe}, limit=limit)

    def durations(self, stages: Sequence[str], recipe: str | None = None) -> dict[str, float]:
        """Seconds that the last execution of each stage took; never executed ones are absent.

        With `recipe` its own executions alone count: another one's stage may be of any size.
        """
        own = "" if recipe is None else " AND r.recipe=:recipe"
        sql = (
            "SELECT stage,ended-started FROM stage_runs WHERE num IN (SELECT MAX(s.num)"
            " FROM stage_runs s LEFT JOIN runs r ON r.id=s.run_id WHERE s.stage IN ({values})"
            f" AND s.status='succeeded'{own} GROUP BY s.stage)"
        )
        # A clock that was set back during a stage must not make it take negative time.
        fixed = {} if recipe is None else {"recipe": recipe}
        rows = query_in(self.store, sql, list(stages), fixed=fixed)
        return {stage: max(0.0, took) for stage, took in rows}

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
            bounds = {"low": last, "high": rows[-1][0]}
            yield from self._reader.where("num > :low AND num <= :high", bounds)[::-1]
            last = rows[-1][0]

    def conflicts(self, keys: Sequence[str] | None = None) -> list[Conflict]:
        """Keys (among `keys`, or all) with more than one set of outputs, in order of key."""
        return _conflicts(self.store, self._reader, keys)

    def release(self, release: Release) -> None:
        """Append a release."""
        write_release(self.store, release)

    def releases(self) -> list[Release]:
        """Every release, oldest first."""
        return read_releases(self.store)

    def recall(self, *recalls: Recall) -> None:
        """Append recalls, or withdrawals of earlier ones."""
        write_recalls(self.store, recalls)

    def recalls(self) -> list[Recall]:
        """The recalls that are in force, oldest first."""
        return recalls_in_force(self.store)

    def verified(self, *verifications: Verification) -> None:
        """Append what was found when something was run again."""
        if verifications:
            write_verifications(self.store, verifications)

    def verifications(self) -> list[Verification]:
        """Everything that was ever found so, oldest first."""
        return read_verifications(self.store)

    def verifications_of(self, keys: Sequence[str]) -> dict[str, list[Verification]]:
        """What was found of stage runs under each of these keys, oldest first; none is absent."""
        return verifications_of(self.store, keys)

    def _runs(self, condition: str, params: Params, *, limit: int | None) -> list[Run]:
        tail = f" LIMIT {limit}" if limit is not None else ""
        columns = _RUN_COLUMNS.replace("mlflow_run_id", annotated("mlflow_run_id", "runs"))
        sql = f"SELECT {columns} FROM runs WHERE {condition} ORDER BY num DESC{tail}"
        return [_run(row) for row in self.store.query(sql, params)]


def open_ledger(url_or_path: str | Path, *, create: bool = True) -> Ledger:
    """Open, create or migrate the ledger at a path, a `sqlite:///` URL or a PostgreSQL URL."""
    store = open_store(str(url_or_path), create=create)
    ensure_current(store)
    return Ledger(store)


def _conflicts(store: Store, reader: StageRunReader, keys: Sequence[str] | None) -> list[Conflict]:
    chosen = "" if keys is None else " AND s.key IN ({values})"
    sql = (
        "SELECT s.key FROM stage_runs s JOIN derivations d ON d.num=s.derivation"
        f" WHERE s.status='succeeded'{chosen} GROUP BY s.key HAVING COUNT(DISTINCT d.outputs_sha)>1"
    )
    rows = store.query(sql) if keys is None else query_in(store, sql, sorted(set(keys)))
    newest = (
        "num IN (SELECT MAX(s.num) FROM stage_runs s JOIN derivations d ON d.num=s.derivation"
        " WHERE s.key IN ({values}) AND s.status='succeeded' GROUP BY s.key,d.outputs_sha)"
    )
    found: dict[str, list[StageRun]] = {}
    for run in reader.where_in(newest, sorted(row[0] for row in rows)):
        found.setdefault(run.key, []).append(run)
    return [Conflict(key, runs[0].stage, tuple(runs)) for key, runs in sorted(found.items())]


def _run(row: Row) -> Run:
    *values, overrides, process = row
    run_id, recipe, started, command, ended, status, commit, dirty, mlflow_id, prefect_id = values
    return Run(
        id=run_id,
        recipe=recipe,
        started=started,
        command=command,
        ended=ended,
        status="killed" if status == "running" and is_gone(process) else status,
        git_commit=commit,
        git_dirty=bool(dirty),
        mlflow_run_id=mlflow_id,
        prefect_run_id=prefect_id,
        overrides=json.loads(overrides),
    )
