"""Schema creation and Alembic migrations; imported only when a schema is not the newest."""

from pathlib import Path

import sqlalchemy
from sqlalchemy.schema import CreateIndex, CreateTable

from posttrain.pipeline.ledger.schema import METADATA

_MIGRATIONS = Path(__file__).parent / "migrations"


def creation_sql(url: str) -> list[str]:
    """The statements that make an empty database a ledger, in the database's own dialect."""
    dialect = sqlalchemy.make_url(url).get_dialect()()
    statements = ["CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"]
    for table in METADATA.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    return statements


def upgrade(url: str, revision: str) -> None:
    """Run the migrations that lie between the database's schema and `revision`."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["url"] = url
    command.upgrade(config, revision)
