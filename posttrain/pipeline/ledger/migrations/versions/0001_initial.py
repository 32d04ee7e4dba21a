"""The first schema."""

from alembic import op

from posttrain.pipeline.ledger.schema import METADATA

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create every table; a fresh ledger does the same without Alembic.

    The revision after this one must spell these tables out here as they were.
    """
    METADATA.create_all(op.get_bind())
