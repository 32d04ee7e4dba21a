"""Which tables there are, by kind, by stage, and by version."""

import posixpath
from dataclasses import dataclass, replace
from pathlib import Path

from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.ledger.annotations import RECIPE_FOLDER
from posttrain.provenance.ledger.location import recipe_folder
from posttrain.provenance.ledger.reading import IS_DONE

# Paths are recorded from the recipe's folder: two recipes of a project have the same ones.
_MADE = (
    "SELECT a.type,a.digest,a.size,p.role,p.path,e.rows,o.md5,s.stage,s.run_id,s.ended,r.recipe,"
    "n.value AS folder FROM stage_runs s JOIN runs r ON r.id=s.run_id"
    " JOIN edges e ON e.derivation=s.derivation AND e.direction=1"
    " JOIN artifacts a ON a.num=e.artifact JOIN ports p ON p.num=e.port"
    " LEFT JOIN objects o ON o.artifact=a.num"
    f" LEFT JOIN annotations n ON n.subject=r.id AND n.name='{RECIPE_FOLDER}'"
    f" WHERE s.{IS_DONE}"
)
_NEWEST_FIRST = " ORDER BY s.num DESC"


@dataclass(frozen=True)
class MadeTable:
    """A table as a stage made it; its path is from the project's root."""

    record: ArtifactRecord
    stage: str
    run_id: str
    made: float


def made_artifact(ledger: Ledger, root: Path, digest: str) -> ArtifactRecord | None:
    """Find an artifact that a stage made.

    Args:
        ledger: That remembers it.
        root: The project.
        digest: Hex SHA-256, or its beginning.

    Returns:
        Its record, with the path from the project's root, as it was last made; None where no stage
        made one.

    """
    here = " AND a.digest>=:low AND a.digest<:high"
    found = _read(ledger, root, here, limit=1, low=digest, high=f"{digest}g")
    return found[0].record if found else None


def newest_of_kind(ledger: Ledger, root: Path, kind: str) -> ArtifactRecord | None:
    """Find the table of a kind that was made or reused last."""
    found = _read(ledger, root, " AND a.type=:kind", limit=1, kind=kind)
    return found[0].record if found else None


def tables_made(ledger: Ledger, root: Path) -> list[MadeTable]:
    """Read every table that stages made.

    Args:
        ledger: That remembers them.
        root: The project.

    Returns:
        Newest first; of bytes that several runs had at one place, the last of them.

    """
    return _read(ledger, root, " AND p.path LIKE '%.parquet'")


def versions_of(ledger: Ledger, root: Path, record: ArtifactRecord) -> list[MadeTable]:
    """Find the tables that stages made at the place of one.

    Args:
        ledger: That remembers them.
        root: The project.
        record: The one, with its path from the project's root.

    Returns:
        Newest first, it among them.

    """
    same = _read(ledger, root, " AND a.type=:kind", kind=record.type)
    return [each for each in same if each.record.path == record.path]


def others_of_kind(ledger: Ledger, root: Path, record: ArtifactRecord) -> list[ArtifactRecord]:
    """Find the newest tables of a kind at other places than that of one.

    Args:
        ledger: That remembers them.
        root: The project.
        record: The one.

    Returns:
        One for each place, such as that of another recipe or stage, newest first.

    """
    newest: dict[str, ArtifactRecord] = {}
    for each in _read(ledger, root, " AND a.type=:kind", kind=record.type):
        newest.setdefault(each.record.path, each.record)
    return [each for path, each in newest.items() if path != record.path]


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
        " JOIN artifacts a ON a.num=e.artifact"
        f" WHERE a.digest=:digest AND a.type=:kind AND s.{IS_DONE} ORDER BY s.num DESC LIMIT 1"
    )
    ids = ledger.store.column(sql, {"digest": record.digest, "kind": record.type})
    return ledger.stage_run(ids[0]) if ids else None


def _read(
    ledger: Ledger, root: Path, among: str, *, limit: int | None = None, **values: str
) -> list[MadeTable]:
    tail = "" if limit is None else f" LIMIT {limit}"
    found: dict[tuple[str, str], MadeTable] = {}
    for row in ledger.store.query(f"{_MADE}{among}{_NEWEST_FIRST}{tail}", values):
        folder = row.folder or recipe_folder(root, row.recipe)
        place = posixpath.normpath(posixpath.join(folder, row.path))
        known = found.get((row.digest, place))
        if known is None:
            record = ArtifactRecord(
                row.role, row.type, place, row.digest, row.size, row.rows, row.stage, row.md5
            )
            found[row.digest, place] = MadeTable(record, row.stage, row.run_id, row.ended)
        else:
            found[row.digest, place] = replace(known, made=min(known.made, row.ended))
    return list(found.values())
