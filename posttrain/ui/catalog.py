"""Which tables there are, by kind, by stage, and by version."""

from dataclasses import dataclass

from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.ledger.reading import IS_DONE

_MADE = (
    "SELECT a.type,a.digest,a.size,p.role,p.path,p.producer,e.rows,o.md5,s.stage,s.run_id,"
    "MAX(s.num) AS last, MIN(s.ended) AS made"
    " FROM stage_runs s JOIN edges e ON e.derivation=s.derivation AND e.direction=1"
    " JOIN artifacts a ON a.num=e.artifact JOIN ports p ON p.num=e.port"
    f" LEFT JOIN objects o ON o.artifact=a.num WHERE s.{IS_DONE} AND p.path LIKE '%.parquet'"
)
_GROUPED = " GROUP BY a.digest,p.path ORDER BY last DESC"


@dataclass(frozen=True)
class MadeTable:
    """A table as a stage made it."""

    record: ArtifactRecord
    stage: str
    run_id: str
    made: float


def newest_of_kind(ledger: Ledger, kind: str) -> ArtifactRecord | None:
    """Find the table of a kind that was made or reused last."""
    found = _read(ledger, f"{_MADE} AND a.type=:kind{_GROUPED} LIMIT 1", kind=kind)
    return found[0].record if found else None


def tables_made(ledger: Ledger) -> list[MadeTable]:
    """Read every table that stages made.

    Args:
        ledger: That remembers them.

    Returns:
        Newest first; of bytes that several runs had, the last of them.

    """
    return _read(ledger, _MADE + _GROUPED)


def versions_of(ledger: Ledger, record: ArtifactRecord) -> list[MadeTable]:
    """Find the tables that stages made at the place of one.

    Args:
        ledger: That remembers them.
        record: The one.

    Returns:
        Newest first, it among them.

    """
    return _read(ledger, f"{_MADE} AND p.path=:path{_GROUPED}", path=record.path)


def maker_of(ledger: Ledger, record: ArtifactRecord) -> StageRun | None:
    """Find the stage run that made an artifact, or reused it last.

    Args:
        ledger: That remembers it.
        record: The artifact.

    Returns:
        The newest; None for a file from outside.

    """
    sql = (
        "SELECT s.id FROM stage_runs s JOIN edges e ON e.derivation=s.derivation AND e.direction=1"
        " JOIN artifacts a ON a.num=e.artifact JOIN ports p ON p.num=e.port"
        f" WHERE a.digest=:digest AND p.path=:path AND s.{IS_DONE} ORDER BY s.num DESC LIMIT 1"
    )
    ids = ledger.store.column(sql, {"digest": record.digest, "path": record.path})
    return ledger.stage_run(ids[0]) if ids else None


def _read(ledger: Ledger, sql: str, **values: str) -> list[MadeTable]:
    return [
        MadeTable(
            ArtifactRecord(
                row.role, row.type, row.path, row.digest, row.size, row.rows, row.stage, row.md5
            ),
            row.stage,
            row.run_id,
            row.made,
        )
        for row in ledger.store.query(sql, values)
    ]
