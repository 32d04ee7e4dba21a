"""What scores answers is called a verifier; a judge is a model that does it."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Give the verifiers among the artifacts today's kind, role and path; their digests stay."""
    # A task of one's own may call its artifacts and its ports so.
    verifiers = "substr(path, 1, 6) = 'judge:' AND role = 'judge'"
    op.execute(
        "UPDATE artifacts SET type = 'verifier' WHERE type = 'judge' AND num IN (SELECT artifact"
        f" FROM edges WHERE port IN (SELECT num FROM ports WHERE {verifiers}))"
    )
    op.execute(
        "UPDATE ports SET path = 'verifier:' || substr(path, 7), role = 'verifier'"
        f" WHERE {verifiers}"
    )
