"""Schema creation and Alembic migrations; imported only when a schema is not the newest."""

import sqlite3
from pathlib import Path

import sqlalchemy
from sqlalchemy.schema import CreateIndex, CreateTable

from posttrain.provenance.ledger.schema import METADATA
from posttrain.provenance.ledger.store import explained
from posttrain.stage.errors import UserError, first_line, masked

_POSTGRESQL = ("postgres", "postgresql")
MIGRATIONS = Path(__file__).parent / "migrations"


def driver_url(url: str) -> str:
    """A PostgreSQL URL with the one driver that is supported, psycopg, spelled out."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if separator and scheme in _POSTGRESQL else url


def creation_sql(url: str) -> list[str]:
    """The statements that make an empty database a ledger, in the database's own dialect."""
    dialect = sqlalchemy.make_url(driver_url(url)).get_dialect()()
    statements = ["CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"]
    for table in METADATA.sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    return statements


def upgrade(url: str, revision: str) -> None:
    """Run the migrations that lie between the database's schema and `revision`, as one writer.

    Args:
        url: Of the database.
        revision: The schema that it has afterwards, or has already.

    Raises:
        UserError: The database cannot be written, or its writer does not come to an end.

    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["url"] = driver_url(url)
    name = masked(url)
    with explained(name, "upgraded to today's schema"):
        try:
            command.upgrade(config, revision)
        except sqlalchemy.exc.DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise error.orig from None
            raise UserError(
                f"the ledger {name} cannot be upgraded to today's schema: {first_line(error)}"
            ) from None
