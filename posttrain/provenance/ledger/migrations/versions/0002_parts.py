"""What artifacts carry inside them, and what becomes known of a run after it was recorded."""

from alembic import op

from posttrain.provenance.ledger.schema import METADATA

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add two tables; those that there were stay as they are."""
    new = [METADATA.tables[name] for name in ("compositions", "annotations")]
    METADATA.create_all(op.get_bind(), tables=new)
