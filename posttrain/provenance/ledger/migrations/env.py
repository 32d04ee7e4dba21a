"""Alembic's entry: connect to the ledger that asked, and migrate it as its only writer.

The lock comes first: the version is read inside it, so that of several processes one migrates.
"""

import sqlalchemy
from alembic import context

from posttrain.provenance.ledger.dialects import WRITER_LOCK
from posttrain.provenance.ledger.schema import METADATA
from posttrain.stage.write_ahead import BUSY_SECONDS

url = sqlalchemy.make_url(context.config.attributes["url"])
is_file = url.get_backend_name() == "sqlite"
# A file's transaction begins with the lock, not where its driver thinks that it must.
options = {"timeout": BUSY_SECONDS, "isolation_level": None} if is_file else {}
engine = sqlalchemy.create_engine(url, connect_args=options)
try:
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(WRITER_LOCK[url.get_backend_name()])
        context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True)
        context.run_migrations()
finally:
    engine.dispose()
