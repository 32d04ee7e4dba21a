"""A database that goes away while we work with it is waited for; one that never answered is not."""

import time
from typing import Any

from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError

WAIT_SECONDS = 120.0
_POLL_SECONDS = 0.5


def patient(engine: Engine) -> Engine:
    """`engine`, whose connections are tried again for two minutes once one has been made."""
    connected = False

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: Any, arguments: Any, keywords: Any) -> Any:
        nonlocal connected
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                made = dialect.connect(*arguments, **keywords)
            except dialect.loaded_dbapi.OperationalError:
                if not connected or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                connected = True
                return made

    return engine


def was_cut(error: DBAPIError) -> bool:
    """Whether the connection is gone, as opposed to the statement being wrong."""
    return bool(error.connection_invalidated)
