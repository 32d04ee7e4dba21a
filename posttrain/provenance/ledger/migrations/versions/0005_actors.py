"""Who began a run, made a release, recalled an artifact."""

import sqlalchemy
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add a column to three tables; of what was recorded before, it is not known."""
    for table in ("runs", "releases", "recalls"):
        op.add_column(table, sqlalchemy.Column("actor", sqlalchemy.String))
