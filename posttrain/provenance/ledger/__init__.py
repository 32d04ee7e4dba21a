"""The ledger: every stage run ever, append-only, in SQLite or PostgreSQL.

One set of SQL texts serves both; `dialects` holds the few that differ. SQLAlchemy declares the
schema and drives PostgreSQL; SQLite is reached by the standard library's driver, because importing
SQLAlchemy costs more than a whole lineage query (docs/decisions/0006-ledger.md).
"""

from posttrain.provenance.ledger.conflicts import Conflict, conflicts, explain_conflict
from posttrain.provenance.ledger.ledger import Ledger, open_ledger, read_ledger
from posttrain.provenance.ledger.location import REPORT_FILE as REPORT_FILE
from posttrain.provenance.ledger.location import ledger_location
from posttrain.provenance.ledger.records import (
    Adoption,
    ArtifactRecord,
    Composition,
    Recall,
    Release,
    Run,
    StageRun,
    Verification,
)

__all__ = [
    "Adoption",
    "ArtifactRecord",
    "Composition",
    "Conflict",
    "Ledger",
    "Recall",
    "Release",
    "Run",
    "StageRun",
    "Verification",
    "conflicts",
    "explain_conflict",
    "ledger_location",
    "open_ledger",
    "read_ledger",
]
