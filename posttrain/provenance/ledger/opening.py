"""Which kind of store a path or URL stands for."""

from pathlib import Path

from posttrain.provenance.ledger.store import SqliteStore, Store
from posttrain.stage.errors import UserError


def open_store(url: str, *, create: bool = True) -> Store:
    """Connect to a path, a `sqlite:///` URL, or any other URL that SQLAlchemy knows.

    Args:
        url: Where the database is.
        create: True makes a SQLite file that is not there.

    Returns:
        The open database.

    Raises:
        UserError: There is no file and none shall be made, or the server cannot be reached.

    """
    if "://" not in url or url.startswith("sqlite:"):
        path = Path(url.removeprefix("sqlite:///"))
        if not create and not path.exists():
            raise UserError(f"there is no ledger at {path}; run the recipe first: posttrain run")
        return SqliteStore(path)
    # Importing SQLAlchemy takes longer than all else that a command does that changes nothing.
    from posttrain.provenance.ledger.server import ServerStore

    return ServerStore(url)
