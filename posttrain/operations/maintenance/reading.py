"""The ledger as it is: for who only looks, and neither makes one nor migrates it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.ledger import open_store
from posttrain.provenance.ledger.location import ledger_location
from posttrain.provenance.ledger.store import Store
from posttrain.provenance.ledger.version import HEAD, stored_version
from posttrain.stage.errors import UserError


@contextmanager
def ledger_as_it_is(root: Path) -> Iterator[Ledger | None]:
    """The ledger of a project; None where there is none that this version reads."""
    try:
        store = open_store(ledger_location(root), create=False)
    except UserError:
        yield None
        return
    with closing(store):
        yield Ledger(store) if _current(store) else None


def _current(store: Store) -> bool:
    try:
        return stored_version(store) == HEAD
    except UserError:
        return False
