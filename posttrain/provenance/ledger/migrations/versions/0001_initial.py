"""The first schema."""

from alembic import op

from posttrain.provenance.ledger.schema import METADATA

_FIRST = (
    "runs",
    "documents",
    "artifacts",
    "objects",
    "ports",
    "derivations",
    "stage_runs",
    "edges",
    "releases",
    "recalls",
)

# Columns that later revisions add.
_LATER = (
    ("stage_runs", "circumstances"),
    ("runs", "actor"),
    ("releases", "actor"),
    ("recalls", "actor"),
)

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables that there were at first.

    The revision that changes one of them must spell it out here as it was.
    """
    METADATA.create_all(op.get_bind(), tables=[METADATA.tables[name] for name in _FIRST])
    for table, column in _LATER:
        op.drop_column(table, column)
