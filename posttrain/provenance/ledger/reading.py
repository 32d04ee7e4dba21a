"""Read stage runs back: rows, their edges and their key components, in three queries."""

import json
from collections.abc import Mapping, Sequence

from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.provenance.ledger.store import Params, Row, Store, query_in


def annotated(column: str, table: str) -> str:
    """SQL for what was annotated under a column's name, else the column as it was recorded."""
    return (
        f"COALESCE((SELECT value FROM annotations WHERE subject={table}.id AND name='{column}'),"
        f"{table}.{column})"
    )


_COLUMNS = (
    "num,id,run_id,stage,task,key,status,derivation,started,ended,components,timings,metrics,host,"
    f"log_path,error,attempt,{annotated('mlflow_run_id', 'stage_runs')}"
)
_EDGES = (
    "SELECT e.derivation,e.direction,p.role,a.type,p.path,a.digest,a.size,e.rows,p.producer,o.md5"
    " FROM edges e JOIN artifacts a ON a.num=e.artifact JOIN ports p ON p.num=e.port"
    " LEFT JOIN objects o ON o.artifact=e.artifact"
    " WHERE e.derivation IN ({values}) ORDER BY e.derivation,e.direction,e.position"
)


Sides = tuple[tuple[ArtifactRecord, ...], tuple[ArtifactRecord, ...]]


def read_edges(store: Store, derivations: Sequence[int]) -> dict[int, Sides]:
    """Inputs and outputs of each derivation; one without any is absent."""
    sides: dict[int, tuple[list[ArtifactRecord], list[ArtifactRecord]]] = {}
    for row in query_in(store, _EDGES, sorted(set(derivations))):
        derivation, direction, role, kind, path, digest, size, rows, producer, md5 = row
        record = ArtifactRecord(role, kind, path, digest, size, rows, producer or None, md5)
        sides.setdefault(derivation, ([], []))[direction].append(record)
    return {number: (tuple(read), tuple(made)) for number, (read, made) in sides.items()}


class StageRunReader:
    """Turns rows into `StageRun`s; documents never change, so each is parsed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents: dict[str, Mapping[str, str]] = {}

    def where(self, condition: str, params: Params, *, limit: int | None = None) -> list[StageRun]:
        """Stage runs for which `condition` holds, newest first."""
        tail = f" LIMIT {limit}" if limit is not None else ""
        sql = f"SELECT {_COLUMNS} FROM stage_runs WHERE {condition} ORDER BY num DESC{tail}"
        return self._build(self._store.query(sql, params))

    def where_in(self, condition: str, values: Sequence[str]) -> list[StageRun]:
        """As `where`, with one `{values}` list of any length in the condition."""
        sql = f"SELECT {_COLUMNS} FROM stage_runs WHERE {condition}"
        rows = query_in(self._store, sql, values)
        return self._build(sorted(rows, key=lambda row: -row[0]))

    def _build(self, rows: Sequence[Row]) -> list[StageRun]:
        edges = read_edges(self._store, [row[7] for row in rows])
        parsed = [json.loads(row[10]) for row in rows]
        self._load_documents({sha for groups in parsed for sha in groups.values()})
        return [
            self._stage_run(row, groups, edges.get(row[7], ((), ())))
            for row, groups in zip(rows, parsed, strict=True)
        ]

    def _stage_run(
        self,
        row: Row,
        groups: Mapping[str, str],
        edges: Sides,
    ) -> StageRun:
        _num, id_, run_id, stage, task, key, status, _derivation, started, ended, *rest = row
        _components, timings, metrics, host, log_path, error, attempt, mlflow_run_id = rest
        return StageRun(
            id=id_,
            run_id=run_id,
            stage=stage,
            task=task,
            key=key,
            status=status,
            started=started,
            ended=ended,
            components={name: self._documents[sha] for name, sha in groups.items()},
            timings=json.loads(timings),
            inputs=edges[0],
            outputs=edges[1],
            metrics=json.loads(metrics),
            host=host,
            log_path=log_path,
            error=error,
            attempt=attempt,
            mlflow_run_id=mlflow_run_id,
        )

    def _load_documents(self, shas: set[str]) -> None:
        missing = sorted(shas - self._documents.keys())
        sql = "SELECT sha,body FROM documents WHERE sha IN ({values})"
        for sha, body in query_in(self._store, sql, missing):
            self._documents[sha] = json.loads(body)
