"""What decided the bytes of a stage run beside its key, such as the processor."""

import sqlalchemy
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a column; of what ran before, it is not known."""
    op.add_column("stage_runs", sqlalchemy.Column("circumstances", sqlalchemy.String))
