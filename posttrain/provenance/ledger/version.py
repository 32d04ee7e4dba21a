"""Which schema a database has: created at the newest, migrated when older, refused when newer."""

from posttrain.provenance.ledger.dialects import OWN_TABLES
from posttrain.provenance.ledger.store import Store
from posttrain.stage.errors import UserError, masked

# Every revision ever released, oldest first; each has a file in migrations/versions.
REVISIONS = ("0001", "0002", "0003", "0004", "0005")
HEAD = REVISIONS[-1]


def ensure_current(store: Store) -> None:
    """Bring the database to `HEAD`, or refuse it with a sentence. Costs one SELECT when it is."""
    version = stored_version(store)
    if version == HEAD:
        return
    if version is None:
        _create(store)
    elif version in REVISIONS:
        from posttrain.provenance.ledger.migrate import upgrade

        upgrade(store.url, HEAD)
    else:
        raise UserError(
            f"the ledger at {masked(store.url)} was written by a newer posttrain (schema {version},"
            f" this one knows up to {HEAD}); upgrade posttrain, or export it there and import it"
            " here"
        )


def stored_version(store: Store) -> str | None:
    """The revision that the database is stamped with, or None where there is no ledger yet."""
    catalog = f"SELECT * FROM ({OWN_TABLES[store.dialect]}) t WHERE name = 'alembic_version'"
    if not store.query(catalog):
        return None
    stamped = store.column("SELECT version_num FROM alembic_version")
    return str(stamped[0]) if stamped else None


def _create(store: Store) -> None:
    """Create every table at `HEAD` and stamp it, unless another process was faster."""
    from posttrain.provenance.ledger.migrate import creation_sql

    statements = creation_sql(store.url)
    with store.transaction():
        if stored_version(store) is not None:
            return
        if store.query(OWN_TABLES[store.dialect]):
            raise UserError(
                f"the database {masked(store.url)} belongs to another program; name an empty one"
            )
        for statement in statements:
            store.execute_many(statement, [{}])
        store.execute_many("INSERT INTO alembic_version VALUES (:version)", [{"version": HEAD}])
