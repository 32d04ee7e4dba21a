"""Alembic's entry: connect to the ledger that asked, and migrate it in one transaction."""

import sqlalchemy
from alembic import context

from posttrain.provenance.ledger.schema import METADATA

engine = sqlalchemy.create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
