"""A server of tools at an address of this machine: the protocol's streamable HTTP."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from posttrain.backends.mcp.session import VERSION, Carrier, JsonMessage, reply_to_request

_MOST_BYTES = 4 << 20
_SESSION = "Mcp-Session-Id"
_SECONDS_TO_TELL = 10.0


class Web(Carrier):
    """A server that somebody else started."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet: the first message does."""
        import httpx2

        # No proxy has a say in what stays on this machine.
        self._http = httpx2.Client(trust_env=False)
        self._url = url
        self._session: dict[str, str] = {}

    def ask(self, message: JsonMessage, *, seconds: float) -> JsonMessage:
        """Post the message, and read its response or the events that lead to it."""
        deadline = time.monotonic() + seconds
        for told in self._posted(message, deadline):
            if (reply := reply_to_request(told)) is not None:
                self.tell(reply)
            elif told.get("id") == message["id"]:
                return told
        raise ConnectionError("it does not answer the request")

    def tell(self, message: JsonMessage) -> None:
        """Post the message; see `Carrier.tell`."""
        for _ in self._posted(message, time.monotonic() + _SECONDS_TO_TELL):
            pass

    def close(self, *, hangs: bool = False) -> None:
        """End the session; the server goes on."""
        with suppress(OSError), _as_ours():
            if self._session and not hangs:
                self._http.delete(self._url, headers=self._session, timeout=_SECONDS_TO_TELL)
        self._http.close()

    def _posted(self, message: JsonMessage, deadline: float) -> Iterator[JsonMessage]:
        headers = {"Accept": "application/json, text/event-stream", **self._session}
        seconds = max(0.01, deadline - time.monotonic())
        with (
            _as_ours(),
            self._http.stream(
                "POST", self._url, json=message, headers=headers, timeout=seconds
            ) as response,
        ):
            if response.status_code >= 400:  # noqa: PLR2004 - of HTTP
                raise ConnectionError(f"it answers with status {response.status_code}")
            if _SESSION in response.headers:
                self._session[_SESSION] = response.headers[_SESSION]
                self._session["MCP-Protocol-Version"] = VERSION
            lines = _bounded(response.iter_lines(), deadline)
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                yield from map(_message, _events(lines))
            elif text := "\n".join(lines):
                yield _message(text)


def _events(lines: Iterable[str]) -> Iterator[str]:
    """Take the data of server-sent events: lines that begin with `data:`, up to an empty one."""
    data: list[str] = []
    for line in (*lines, ""):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line:
            if text := "\n".join(data):
                yield text
            data = []


def _bounded(lines: Iterable[str], deadline: float) -> Iterator[str]:
    left = _MOST_BYTES
    for line in lines:
        left -= len(line)
        if left < 0:
            raise ConnectionError(f"it says more than {_MOST_BYTES} bytes at once")
        if time.monotonic() > deadline:
            raise TimeoutError
        yield line


def _message(text: str) -> JsonMessage:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        raise ConnectionError("it answers with what is no message") from None


@contextmanager
def _as_ours() -> Iterator[None]:
    """Name what the client of HTTP raises as carriers do."""
    import httpx2

    try:
        yield
    except httpx2.TimeoutException:
        raise TimeoutError from None
    except httpx2.HTTPError as error:
        raise ConnectionError(str(error) or type(error).__name__) from None
