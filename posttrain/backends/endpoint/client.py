"""Many requests to one endpoint: bounded, repeated where that helps, and answered once for all."""

import json
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from posttrain.backends.endpoint.cache import RequestCache, default_path, request_key
from posttrain.backends.endpoint.config import Endpoint
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    import httpx2


T = TypeVar("T")

_CONNECT_S = 10.0
_SAID_CHARS = 200
_KEPT = "what was answered so far is kept and is not asked again"

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses that may pass by themselves."""

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


@dataclass(frozen=True)
class Asked:
    """One request: the fields beyond the model, and what tells repeated draws apart."""

    body: Mapping[str, Any]
    salt: str = ""


class Client:
    """Asks one endpoint. Threads share it; `open_client` gives one for each endpoint."""

    def __init__(self, endpoint: Endpoint, store: RequestCache) -> None:
        import httpx2

        self.endpoint = endpoint
        self._store = store
        self._key = _read_key(endpoint.api_key_env)
        self._http = httpx2.Client(
            base_url=endpoint.base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx2.Timeout(endpoint.timeout_s, connect=_CONNECT_S, pool=None),
            limits=httpx2.Limits(max_connections=endpoint.concurrency),
        )
        self._met = threading.Lock()
        self._card: Mapping[str, Any] | None = None

    def ask(
        self,
        path: str,
        requests: Sequence[Asked],
        read: Callable[[Any], T],
        *,
        report: Callable[[int], None] = lambda _done: None,
    ) -> list[T]:
        """Answers in the order of the requests; equal requests are sent once.

        `read` makes a value of an answer's JSON and raises `ValueError`, `LookupError` or
        `TypeError` where it is none: such an answer is asked for again, and never kept. The first
        request that fails for good ends the call with a `UserError`.
        """
        keys = [request_key(self._url(path), self._body(each), each.salt) for each in requests]
        first = dict(zip(keys, requests, strict=True))
        values: dict[str, T] = {}
        for key in first:
            kept = self._store.get(key)
            if kept is not None:
                values[key] = read(kept)
        missing = {key: each for key, each in first.items() if key not in values}
        if missing:
            self.card()
            self._fetch(path, missing, read, values, report)
        return [values[key] for key in keys]

    def card(self) -> Mapping[str, Any]:
        """What the endpoint says of the model; empty where it has no list of models."""
        with self._met:
            if self._card is None:
                self._card = self._meet()
            return self._card

    def _fetch(
        self,
        path: str,
        missing: Mapping[str, Asked],
        read: Callable[[Any], T],
        values: dict[str, T],
        report: Callable[[int], None],
    ) -> None:
        """Send what is missing; after the first failure nothing more is sent."""
        stop = threading.Event()

        def one(key: str) -> T | None:
            if stop.is_set():
                return None
            try:
                answer, value = self._send(path, self._body(missing[key]), read, stop)
            except CancelledError:
                return None
            except BaseException:
                stop.set()
                raise
            self._store.put(key, answer)
            return value

        failures: list[BaseException] = []
        with ThreadPoolExecutor(min(self.endpoint.concurrency, len(missing))) as pool:
            futures = {pool.submit(one, key): key for key in missing}
            try:
                for future in as_completed(futures):
                    if error := future.exception():
                        failures.append(error)
                    elif (value := future.result()) is not None:
                        values[futures[future]] = value
                        report(len(values))
            finally:
                stop.set()
        if failures:
            raise failures[0]

    def _send(
        self, path: str, body: Mapping[str, Any], read: Callable[[Any], T], stop: threading.Event
    ) -> tuple[Any, T]:
        """One request until it is answered: its JSON and what was read of it."""
        import httpx2

        failure = ""
        for attempt in range(self.endpoint.retries + 1):
            headers: Mapping[str, str] = {}
            try:
                response = self._http.post(path, json=body)
                if response.status_code == httpx2.codes.OK:
                    answer = response.json()
                    return answer, read(answer)
                failure, headers = self._refused(response, path), response.headers
            except httpx2.TimeoutException:
                failure = f"gave no answer for {self.endpoint.timeout_s:g} s; raise timeout_s, or"
                failure += " lower concurrency"
            except httpx2.TransportError as error:
                failure = f"broke the connection off ({type(error).__name__}); look at its log"
            except (ValueError, LookupError, TypeError) as error:
                failure = f"sent an answer that cannot be read ({_short(str(error))}); check that"
                failure += " base_url is an OpenAI-compatible endpoint"
            if attempt < self.endpoint.retries and stop.wait(wait_seconds(attempt, headers)):
                raise CancelledError
        tries = self.endpoint.retries + 1
        raise UserError(f"{self._url(path)} {failure} ({tries} attempts; {_KEPT})")

    def _refused(self, response: "httpx2.Response", path: str) -> str:
        """What to say of a status that may pass; `UserError` for one that will not."""
        status, said = response.status_code, self._said(response)
        if status in RETRIED and "insufficient_quota" not in said:
            return f"answered {status} ({said}); wait, or lower concurrency"
        if status in (401, 403):
            if self.endpoint.api_key_env:
                why = f"refused the key in {self.endpoint.api_key_env}; correct that variable"
            else:
                why = "asks for a key; name the environment variable that holds it in api_key_env"
            raise UserError(f"{self._url(path)} {why} ({status}: {said})")
        if status == 404:
            why = f"does not know the model '{self.endpoint.model}' or this path"
            raise UserError(f"{self._url(path)} {why}; check model and base_url ({said})")
        raise UserError(f"{self._url(path)} refused a request ({status}: {said}); {_KEPT}")

    def _said(self, response: "httpx2.Response") -> str:
        """The server's own words, short, on one line and without the key."""
        try:
            told = response.json()
            error = told.get("error", told) if isinstance(told, dict) else told
            text = json.dumps(error, ensure_ascii=False)
            if isinstance(error, dict) and isinstance(error.get("message"), str):
                text = f"{error.get('code') or ''} {error['message']}".strip()
        except ValueError:
            text = response.text
        return _short(text.replace(self._key, "***") if self._key else text)

    def _meet(self) -> Mapping[str, Any]:
        """Ask for the list of models: a dead endpoint, a wrong key or name shows at once."""
        import httpx2

        try:
            response = self._http.get("models", timeout=min(_CONNECT_S, self.endpoint.timeout_s))
            if response.status_code in (401, 403):
                self._refused(response, "models")
            listed = response.json()["data"] if response.status_code == httpx2.codes.OK else []
            cards = {str(card["id"]): card for card in listed}
        except httpx2.ConnectError as error:
            raise UserError(
                f"{self.endpoint.base_url} cannot be reached ({_short(str(error))}); start the"
                " server, or correct base_url"
            ) from None
        except (httpx2.TransportError, ValueError, LookupError, TypeError):
            return {}
        if cards and self.endpoint.model not in cards:
            raise UserError(
                f"{self.endpoint.base_url} has no model '{self.endpoint.model}'"
                f"{nearest(self.endpoint.model, cards) or '; it has ' + ', '.join(list(cards)[:5])}"
            )
        card: Mapping[str, Any] = cards.get(self.endpoint.model, {})
        return card

    def _body(self, asked: Asked) -> dict[str, Any]:
        fields = {"model": self.endpoint.model, **asked.body}
        if not self.endpoint.send_seed:
            fields.pop("seed", None)
        fields |= self.endpoint.options
        return {name: value for name, value in fields.items() if value is not None}

    def _url(self, path: str) -> str:
        return f"{self.endpoint.base_url.rstrip('/')}/{path}"


def open_client(endpoint: Endpoint) -> Client:
    """The client of an endpoint in this process, with the project's request cache."""
    return _client(endpoint.model_dump_json(), str(default_path()))


@cache
def _client(endpoint: str, path: str) -> Client:
    from pathlib import Path

    return Client(Endpoint.model_validate_json(endpoint), RequestCache(Path(path)))


def _read_key(variable: str | None) -> str:
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UserError(
            f"the environment variable {variable} holds no key; export it and run again"
        )
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UserError(f"the environment variable {variable} does not look like a key; correct it")
    return key


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SAID_CHARS else line[:_SAID_CHARS] + "..."


def wait_seconds(attempt: int, headers: Mapping[str, str], *, now: datetime | None = None) -> float:
    """Seconds to wait after the 0-based `attempt` failed.

    What the server asks for in Retry-After, in seconds or as a date, and never less than the
    back-off: half to all of 0.5 * 2^attempt, drawn anew so that clients do not come back together
    (Brooker, "Exponential backoff and jitter", 2015). At most a minute.
    """
    ceiling = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)
    backoff: float = ceiling * random.uniform(0.5, 1.0)
    asked = _retry_after(headers.get("retry-after", ""), now or datetime.now(UTC))
    return min(LONGEST_WAIT_S, max(backoff, asked))


def _retry_after(value: str, now: datetime) -> float:
    """Seconds until the time that the header names; 0 where it names none."""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
