"""Sessions with a server of OpenEnv: a WebSocket each, which is an environment of its own there.

Messages are those of openenv-core 0.3.0 (`openenv/core/env_server/types.py`): `reset` and `step`
are answered by `observation` or `error`. A session is named by an id and lives in this process.
"""

import itertools
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

OF_THE_ACTION = frozenset({"VALIDATION_ERROR", "EXECUTION_ERROR"})
"""Errors of what was done; all others are the server's."""

_MOST_BYTES = 4 << 20
"""Of one message."""


class Observed(NamedTuple):
    """What a server answered."""

    observation: Any = None
    reward: float = 0.0
    done: bool = False
    wrong: str = ""
    """Why it refused the action; empty where it did not."""


class SessionError(ConnectionError):
    """The server is gone, is late, or breaks the protocol."""


_open: "dict[str, ClientConnection]" = {}
_foreign: "list[ClientConnection]" = []
"""Those of the process that this one was forked from: never read, written or closed here."""
_numbers = itertools.count()


def begin_session(url: str, *, seconds: float) -> str:
    """Connect to a server.

    Args:
        url: Of its `/ws`, as `ws://` or `wss://`.
        seconds: Most until it answers.

    Returns:
        Id of the session.

    Raises:
        SessionError: It does not answer there.
        UserError: The package websockets is not installed.

    """
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ImportError:
        raise UserError(
            "the environment 'openenv' needs websockets, which is not installed; run: pip install"
            " 'posttrain[openenv]'"
        ) from None
    try:
        connection = connect(
            url, open_timeout=seconds, close_timeout=1.0, max_size=_MOST_BYTES, proxy=None
        )
    except (OSError, WebSocketException) as error:
        raise SessionError(str(error) or type(error).__name__) from None
    session = f"{os.getpid()}-{next(_numbers)}"
    _open[session] = connection
    return session


def send_to(session: str, kind: str, data: Mapping[str, Any]) -> None:
    """Send a message, and do not wait for the answer.

    Args:
        session: Its id.
        kind: `reset` or `step`.
        data: Of the message.

    Raises:
        SessionError: The session is over.

    """
    from websockets.exceptions import WebSocketException

    try:
        _open[session].send(json.dumps({"type": kind, "data": data}))
    except KeyError:
        raise SessionError("its session is over") from None
    except WebSocketException:
        # What it said before it hung up says why: the answer is read, and tells.
        return
    except OSError as error:
        raise SessionError(str(error)) from None


def answer_of(session: str, *, deadline: float) -> Observed:
    """Wait for the answer to what was sent.

    Args:
        session: Its id.
        deadline: By the monotonic clock.

    Returns:
        What is observed, or why the action was refused.

    Raises:
        SessionError: It does not come, or is none.

    """
    from websockets.exceptions import WebSocketException

    try:
        told = _open[session].recv(timeout=max(0.0, deadline - time.monotonic()))
        return _observed(json.loads(told))
    except KeyError:
        raise SessionError("its session is over") from None
    except TimeoutError:
        raise SessionError("it does not answer in time") from None
    except (OSError, WebSocketException) as error:
        raise SessionError(str(error) or type(error).__name__) from None
    except (ValueError, TypeError, AttributeError):
        raise SessionError("it answers with what is no message of OpenEnv") from None


def end_session(session: str) -> None:
    """End a session, if it is open: the server frees its environment."""
    connection = _open.pop(session, None)
    if connection is not None:
        with suppress(Exception):  # it may be gone already
            connection.send(json.dumps({"type": "close"}))
        connection.close()


def _observed(told: Any) -> Observed:
    data = told.get("data") or {}
    if told.get("type") == "error":
        said = str(data.get("message") or data.get("code"))
        if data.get("code") in OF_THE_ACTION:
            return Observed(wrong=said)
        raise SessionError(said)
    if told.get("type") != "observation":
        raise ValueError
    reward = data.get("reward")
    return Observed(data["observation"], float(reward or 0.0), bool(data.get("done")))


def _forget() -> None:
    _foreign.extend(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_forget)
