"""What is said to a server of the Model Context Protocol, whatever carries it.

JSON-RPC 2.0, as the specification of 2025-06-18 has it (modelcontextprotocol.io, "Lifecycle" and
"Tools"): a session begins with `initialize`, lists its tools page by page, and calls them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

VERSION = "2025-06-18"
"""Of the protocol. A server may answer by another one; what is asked of it here is in all."""

_MOST_PAGES = 100
_NO_METHOD = -32601

JsonMessage = Mapping[str, Any]


class Tool(NamedTuple):
    """A tool of a server."""

    name: str
    parameters: tuple[str, ...]
    """Names of its arguments, in the order of its schema."""
    texts: frozenset[str] = frozenset()
    """Those that are texts."""


class ToolAnswer(NamedTuple):
    """What a tool gave."""

    text: str
    wrong: bool
    """Whether it says that the call failed."""


class Carrier:
    """Carries messages to a server and back."""

    @abstractmethod
    def ask(self, message: JsonMessage, *, seconds: float) -> JsonMessage:
        """Send a request and wait for what answers it.

        Args:
            message: The request, with an `id`.
            seconds: Most that are waited.

        Returns:
            The response of the same `id`.

        Raises:
            TimeoutError: It did not come in time.
            ConnectionError: The server is gone, or says what is no message.

        """
        raise NotImplementedError

    @abstractmethod
    def tell(self, message: JsonMessage) -> None:
        """Send what nobody answers; raises as `ask` does."""
        raise NotImplementedError

    @abstractmethod
    def close(self, *, hangs: bool = False) -> None:
        """End the connection, and the server where it is ours.

        Args:
            hangs: Whether it is not waited for, as it would not hear.

        """
        raise NotImplementedError

    def release(self) -> None:
        """Let go in a process that was forked from the one that connected: the server lives on."""


class ToolSession:
    """A server that has been greeted, with its tools."""

    def __init__(self, carrier: Carrier, *, seconds: float) -> None:
        """Greet the server and ask for its tools; raises as `Carrier.ask` does."""
        self.carrier = carrier
        self._number = 0
        client = {"name": "posttrain", "version": "1"}
        greeting = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
        self._asked("initialize", greeting, seconds)
        carrier.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = {tool.name: tool for tool in self._listed(seconds)}

    def call(self, name: str, arguments: JsonMessage, *, seconds: float) -> ToolAnswer:
        """Call a tool.

        Args:
            name: Of `tools`.
            arguments: By name.
            seconds: Most that are waited for the answer.

        Returns:
            What it said as text; what is no text is named by its type.

        Raises:
            TimeoutError: It did not answer in time.
            ConnectionError: The server is gone.

        """
        try:
            found = self._asked("tools/call", {"name": name, "arguments": arguments}, seconds)
        except _RefusedError as error:
            return ToolAnswer(str(error), wrong=True)
        return ToolAnswer(_text(found.get("content", ())), bool(found.get("isError")))

    def _listed(self, seconds: float) -> list[Tool]:
        tools: list[Tool] = []
        cursor: JsonMessage = {}
        for _ in range(_MOST_PAGES):
            page = self._asked("tools/list", cursor, seconds)
            tools += [_tool(each) for each in page.get("tools", ())]
            if not page.get("nextCursor"):
                return tools
            cursor = {"cursor": page["nextCursor"]}
        raise ConnectionError(f"it lists more than {_MOST_PAGES} pages of tools")

    def _asked(self, method: str, params: JsonMessage, seconds: float) -> JsonMessage:
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        told = self.carrier.ask(message, seconds=seconds)
        if "error" in told:
            error = told["error"]
            raise _RefusedError(str(error.get("message") if isinstance(error, Mapping) else error))
        found = told.get("result")
        if not isinstance(found, Mapping):
            raise ConnectionError(f"it answers {method} without a result")
        return found


class _RefusedError(ConnectionError):
    """The server answered a request by an error: the end of a greeting, but not of a call."""


def reply_to_request(message: JsonMessage) -> JsonMessage | None:
    """ToolAnswer what a server asks of its client, which offers nothing but to be there.

    >>> reply_to_request({"jsonrpc": "2.0", "id": 7, "method": "ping"})
    {'jsonrpc': '2.0', 'id': 7, 'result': {}}

    Args:
        message: Any that came from the server.

    Returns:
        What to tell it; None where it asked nothing.

    """
    if "method" not in message or "id" not in message:
        return None
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "ping":
        return {**head, "result": {}}
    return {**head, "error": {"code": _NO_METHOD, "message": "the client offers no such method"}}


def _tool(told: JsonMessage) -> Tool:
    try:
        properties = told.get("inputSchema", {}).get("properties", {})
        texts = frozenset(name for name, each in properties.items() if each.get("type") == "string")
        return Tool(str(told["name"]), tuple(properties), texts)
    except (AttributeError, KeyError, TypeError):
        raise ConnectionError("it lists a tool that is none of the protocol") from None


def _text(content: Sequence[JsonMessage]) -> str:
    parts = (each.get("text", f"[{each.get('type')}]") for each in content)
    return "\n".join(str(part) for part in parts)
