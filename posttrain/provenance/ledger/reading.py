"""Read stage runs back: rows, their edges and their key components, in three queries."""

import json
from collections.abc import Mapping, Sequence

from posttrain.provenance.ledger.records import DONE, PROVEN, ArtifactRecord, StageRun
from posttrain.provenance.ledger.store import Params, Row, Store, query_in


def annotated(column: str, table: str) -> str:
    """Write SQL for what was annotated under a column's name, else for what was recorded there.

    Args:
        column: Name of both.
        table: With the column, and an ``id`` that annotations name.

    Returns:
        An expression to select.

    """
    return (
        f"COALESCE((SELECT value FROM annotations WHERE subject={table}.id AND name='{column}'),"
        f"{table}.{column})"
    )


IS_PROVEN = f"status IN {PROVEN}"
"""SQL for a stage run whose outputs are known to be good."""
IS_DONE = f"status IN {DONE}"
"""SQL for a stage run whose outputs are in place."""

_COLUMNS = (
    "num,id,run_id,stage,task,key,status,derivation,started,ended,components,timings,metrics,host,"
    f"log_path,error,attempt,circumstances,"
    f"{annotated('mlflow_run_id', 'stage_runs')} AS mlflow_run_id"
)
_EDGES = (
    "SELECT e.derivation,e.direction,p.role,a.type,p.path,a.digest,a.size,e.rows,p.producer,o.md5"
    " FROM edges e JOIN artifacts a ON a.num=e.artifact JOIN ports p ON p.num=e.port"
    " LEFT JOIN objects o ON o.artifact=e.artifact"
    " WHERE e.derivation IN ({values}) ORDER BY e.derivation,e.direction,e.position"
)


Sides = tuple[tuple[ArtifactRecord, ...], tuple[ArtifactRecord, ...]]


def read_edges(store: Store, derivations: Sequence[int]) -> dict[int, Sides]:
    """Read the inputs and outputs of each derivation.

    Args:
        store: Of the ledger.
        derivations: Their numbers.

    Returns:
        Inputs and outputs by number; of one without edges two empty tuples.

    """
    sides = {number: (list[ArtifactRecord](), list[ArtifactRecord]()) for number in derivations}
    for row in query_in(store, _EDGES, sorted(sides)):
        fields = row._asdict() | {"producer": row.producer or None}
        side = sides[fields.pop("derivation")][fields.pop("direction")]
        side.append(ArtifactRecord(**fields))
    return {number: (tuple(read), tuple(made)) for number, (read, made) in sides.items()}


class StageRunReader:
    """Turns rows into `StageRun`s; documents never change, so each is parsed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._documents: dict[str, Mapping[str, str]] = {}

    def where(self, condition: str, params: Params, *, limit: int | None = None) -> list[StageRun]:
        """Read stage runs by a condition.

        Args:
            condition: SQL with parameters ``:like_this``.
            params: Values of those.
            limit: Most runs; None for all.

        Returns:
            Newest first.

        """
        tail = f" LIMIT {limit}" if limit is not None else ""
        sql = f"SELECT {_COLUMNS} FROM stage_runs WHERE {condition} ORDER BY num DESC{tail}"
        return self._build(self._store.query(sql, params))

    def where_in(self, condition: str, values: Sequence[str]) -> list[StageRun]:
        """Read stage runs by a condition with a list of any length.

        Args:
            condition: SQL with one ``{values}``.
            values: What goes there.

        Returns:
            Newest first.

        """
        sql = f"SELECT {_COLUMNS} FROM stage_runs WHERE {condition}"
        rows = query_in(self._store, sql, values)
        return self._build(sorted(rows, key=lambda row: -row.num))

    def _build(self, rows: Sequence[Row]) -> list[StageRun]:
        edges = read_edges(self._store, [row.derivation for row in rows])
        parsed = [json.loads(row.components) for row in rows]
        wanted = {sha for groups in parsed for sha in groups.values()}
        self._load_documents(wanted | {row.circumstances for row in rows if row.circumstances})
        return [
            self._stage_run(row, groups, edges[row.derivation])
            for row, groups in zip(rows, parsed, strict=True)
        ]

    def _stage_run(
        self,
        row: Row,
        groups: Mapping[str, str],
        edges: Sides,
    ) -> StageRun:
        fields = row._asdict()
        del fields["num"], fields["derivation"]
        fields |= {name: json.loads(fields[name]) for name in ("timings", "metrics")}
        fields["components"] = {name: self._documents[sha] for name, sha in groups.items()}
        sha = fields["circumstances"]
        fields["circumstances"] = self._documents[sha] if sha else {}
        fields["inputs"], fields["outputs"] = edges
        return StageRun(**fields)

    def _load_documents(self, shas: set[str]) -> None:
        missing = sorted(shas - self._documents.keys())
        sql = "SELECT sha,body FROM documents WHERE sha IN ({values})"
        for row in query_in(self._store, sql, missing):
            self._documents[row.sha] = json.loads(row.body)
