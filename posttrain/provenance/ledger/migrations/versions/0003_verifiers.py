"""What scores answers is called a verifier; a judge is a model that does it."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Give the verifiers among the artifacts today's kind, role and path; their digests stay."""
    op.execute("UPDATE artifacts SET type = 'verifier' WHERE type = 'judge'")
    op.execute(
        "UPDATE ports SET path = 'verifier:' || substr(path, 7), role = 'verifier'"
        " WHERE substr(path, 1, 6) = 'judge:' AND role = 'judge'"
    )
