"""The servers of tools of this process: each is started once, and asked by one at a time."""

import os
import threading
from collections.abc import Mapping
from typing import NamedTuple

from posttrain.backends.mcp.child import Child
from posttrain.backends.mcp.session import Carrier, JsonMessage, Tool, ToolAnswer, ToolSession
from posttrain.backends.mcp.web import Web


class ToolServer(NamedTuple):
    """Where a server is, and how long it may take."""

    command: tuple[str, ...]
    """That starts it; none where it is at `url`."""
    url: str
    seconds: float
    """Most for the answer to a call."""
    seconds_to_start: float
    """Most for each answer before the first call."""

    def connected(self) -> Carrier:
        """Start it, or make ready to ask it."""
        return Child(self.command) if self.command else Web(self.url)


_lock = threading.RLock()
_open: dict[ToolServer, ToolSession] = {}


def listed_tools(server: ToolServer) -> Mapping[str, Tool]:
    """Name the tools of a server, which is started if it was not.

    Args:
        server: Which.

    Returns:
        Its tools, by name.

    Raises:
        ConnectionError: It does not start, or does not answer; with the last line of its errors.

    """
    with _lock:
        return _session(server).tools


def call(server: ToolServer, name: str, arguments: JsonMessage) -> ToolAnswer:
    """Call a tool.

    Where the server is lost under a call, that is made once more in a new one. If it is lost again
    the call itself ends it, which is an answer: a policy must gain nothing by it.

    Args:
        server: Which.
        name: Of a tool.
        arguments: By name.

    Returns:
        What it answered; a call that takes too long is a wrong one, and its server is not kept.

    Raises:
        ConnectionError: The server does not start any more.

    """
    with _lock:
        for _ in range(2):
            session = _session(server)
            try:
                return session.call(name, arguments, seconds=server.seconds)
            except TimeoutError:
                # One that computes would not see that it is let go.
                _drop(server, hangs=True)
                return ToolAnswer(f"no answer in {server.seconds:g} s", wrong=True)
            except ConnectionError:
                _drop(server)
        # Raises where it is the server, which cannot even begin.
        _session(server)
        return ToolAnswer("the tool ended", wrong=True)


def end_servers() -> None:
    """End all servers of this process that it started."""
    with _lock:
        for server in tuple(_open):
            _drop(server)


def _session(server: ToolServer) -> ToolSession:
    if server not in _open:
        carrier = server.connected()
        try:
            _open[server] = ToolSession(carrier, seconds=server.seconds_to_start)
        except OSError as error:
            said = carrier.last_words if isinstance(carrier, Child) else ""
            late = isinstance(error, TimeoutError)
            carrier.close(hangs=late)
            why = f"it does not answer in {server.seconds_to_start:g} s" if late else str(error)
            raise ConnectionError(f"{why}: {said}" if said else why) from None
    return _open[server]


def _drop(server: ToolServer, *, hangs: bool = False) -> None:
    _open.pop(server).carrier.close(hangs=hangs)


def _forget() -> None:
    """Let a process that was forked hold no pipes of the servers: they are its parent's."""
    global _lock
    _lock = threading.RLock()
    while _open:
        _open.popitem()[1].carrier.release()


os.register_at_fork(after_in_child=_forget)
