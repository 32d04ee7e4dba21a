"""The ledger: every stage run ever, append-only, in SQLite or PostgreSQL.

SQLAlchemy Core declares the schema and drives PostgreSQL. For SQLite the same SQL texts go through
the standard library's driver, because importing SQLAlchemy costs more than a whole lineage query.
"""

from posttrain.provenance.ledger.ledger import Conflict, Ledger, open_ledger
from posttrain.provenance.ledger.records import (
    ArtifactRecord,
    Composition,
    Recall,
    Release,
    Run,
    StageRun,
    Verification,
)

__all__ = [
    "ArtifactRecord",
    "Composition",
    "Conflict",
    "Ledger",
    "Recall",
    "Release",
    "Run",
    "StageRun",
    "Verification",
    "open_ledger",
]
