"""An environment behind a server that speaks the protocol of OpenEnv."""

import json
import time
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Said,
    Situation,
    Told,
)
from posttrain.learning.episodes.excerpt import excerpt
from posttrain.stage.errors import UserError
from posttrain.stage.needs import ENDPOINT

if TYPE_CHECKING:
    from posttrain.backends.openenv.sessions import Observed
    from posttrain.data.schemas import Problem

_SEEDS = 2**31
_NOTHING: Mapping[str, float] = {POLICY: 0.0}
"""What is said to be earned: situations have no keys, so that silence would mean that another part
judges an only turn."""


class OpenEnv(Environment):
    """Play in an environment of OpenEnv: a turn is an action, and what it observes is read.

    Each episode has a session of its own, so the server must allow as many at once as are played
    side by side. Its rewards, times `scale`, are what is earned: their sum is held within 0 and 1.
    An action that the server refuses is told in a line and counted as a tool error.
    """

    EXACT: ClassVar[bool] = False
    HOLDS: ClassVar[bool] = True
    SOURCE: ClassVar[str] = "openenv-core 0.3.0: messages of its WebSocket"
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"websockets"})

    kind: Literal["openenv"] = "openenv"
    url: str = Field(min_length=1)
    """Of the server: `http://127.0.0.1:8000`."""
    reset: dict[str, Any] = Field(default_factory=dict)
    """What `reset` is told beside the seed; a problem's metadata adds to it, under `openenv`."""
    takes: str | None = "message"
    """Field of the action that is the turn's text; null where the turn is the action, as JSON."""
    action: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every action."""
    shows: str | None = None
    """Field of the observation that is read, `a.b` within others; all of it as JSON if null."""
    begins: Literal["problem", "observation", "both"] = "observation"
    """What the policy reads first: the problem's prompt, what `reset` shows, or one after the
    other."""
    scale: float = Field(default=1.0, gt=0.0)
    """What a reward of 1 earns."""
    seconds: float = Field(default=60.0, gt=0.0, le=3600.0)
    """Most seconds of one answer, after which the episode counts as broken."""
    most_characters: int = Field(default=1000, ge=1)
    """Of an observation so much is told; what is cut off ends with ` ...`."""

    @model_validator(mode="after")
    def _is_an_address(self) -> Self:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
            raise ValueError("url must be like http://host:port")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("url must be an address alone, without a name, a key or a query")
        return self

    def reaches(self) -> frozenset[str]:
        """Connect to the server."""
        return frozenset({ENDPOINT})

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin a session and reset it; see `Environment.start`."""
        from posttrain.backends.openenv import sessions

        session = ""
        try:
            session = sessions.begin_session(self._address(), seconds=self.seconds)
            text = self._reset(session, problem, seed)
        except sessions.SessionError as error:
            sessions.end_session(session)
            raise UserError(
                f"environment openenv: no episode begins at {self.url}: {error}; correct `url`, or"
                " let the server take as many sessions as episodes are played side by side"
            ) from None
        except UserError:
            sessions.end_session(session)
            raise
        new = (Told("user", text),) if text else ()
        return Situation({"session": session, "earned": 0.0}, (Ask(POLICY, new),))

    def _reset(self, session: str, problem: "Problem", seed: int) -> str:
        """Begin an episode in a session; give what is read first, empty for the problem itself."""
        from posttrain.backends.openenv import sessions

        told = {"seed": seed % _SEEDS, **self.reset, **_own(problem)}
        sessions.send_to(session, "reset", told)
        seen = sessions.answer_of(session, deadline=time.monotonic() + self.seconds)
        if seen.wrong or seen.done:
            raise UserError(
                f"environment openenv: no episode begins with reset {json.dumps(told)}:"
                f" {seen.wrong or 'it is over at once'}; correct `reset`"
            )
        if self.begins == "problem":
            return ""
        shown = self._shown(seen)
        return f"{problem.prompt}\n{shown}" if self.begins == "both" else shown

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Do what was said; see `Environment.step`."""
        return self.step_all([Said(state, acts, seed)])[0]

    def step_all(self, turns: Sequence[Said]) -> list[Situation]:
        """Send the actions of all episodes before any is waited for; see `Environment.step_all`."""
        from posttrain.backends.openenv import sessions

        found: list[Situation | None] = [self._sent(turn) for turn in turns]
        deadline = time.monotonic() + self.seconds
        for place, turn in enumerate(turns):
            if found[place] is None:
                try:
                    seen = sessions.answer_of(turn.state["session"], deadline=deadline)
                    found[place] = self._after(turn.state, seen)
                except sessions.SessionError as error:
                    found[place] = _broken(turn.state, error)
        return [each for each in found if each is not None]

    def close(self, state: EpisodeState) -> None:
        """End the session; see `Environment.close`."""
        from posttrain.backends.openenv import sessions

        sessions.end_session(state["session"])

    def _sent(self, turn: Said) -> Situation | None:
        """Send an action; what is none is answered at once."""
        from posttrain.backends.openenv import sessions

        (act,) = turn.acts
        if act.cut:
            return Situation(turn.state, earned=_NOTHING)
        try:
            action = {**self.action, **self._action(act.text)}
        except (ValueError, RecursionError):
            return _refused(turn.state, "no JSON object")
        try:
            sessions.send_to(turn.state["session"], "step", action)
        except sessions.SessionError as error:
            return _broken(turn.state, error)
        return None

    def _action(self, text: str) -> Mapping[str, Any]:
        if self.takes is not None:
            return {self.takes: text.strip()}
        action = json.loads(text)
        if not isinstance(action, dict):
            raise ValueError
        # Nor NaN and 1e999, which Python reads and no server: it would break off, unjudged.
        json.dumps(action, allow_nan=False)
        return action

    def _after(self, state: EpisodeState, seen: "Observed") -> Situation:
        if seen.wrong:
            return _refused(state, excerpt(seen.wrong, self.most_characters))
        if not isfinite(seen.reward):
            return Situation(state, failed="the server: its reward is no number")
        total = state["earned"] + seen.reward * self.scale
        paid = _held(total) - _held(state["earned"])
        after = {**state, "earned": total}
        asks = () if seen.done else (Ask(POLICY, (Told("user", self._shown(seen)),)),)
        return Situation(after, asks, earned={POLICY: paid})

    def _shown(self, seen: "Observed") -> str:
        found = seen.observation
        for name in self.shows.split(".") if self.shows else ():
            if not isinstance(found, Mapping) or name not in found:
                raise UserError(
                    f"environment openenv: an observation has no '{self.shows}'; it is"
                    f" {json.dumps(seen.observation)[:200]}; correct `shows`"
                )
            found = found[name]
        text = found if isinstance(found, str) else json.dumps(found)
        return excerpt(text.strip() or "nothing", self.most_characters)

    def _address(self) -> str:
        scheme, rest = self.url.rstrip("/").split("://", 1)
        secure = {"http": "ws", "https": "wss"}.get(scheme, scheme)
        return f"{secure}://{rest.removesuffix('/ws')}/ws"


def _own(problem: "Problem") -> Mapping[str, Any]:
    found = json.loads(problem.metadata).get("openenv", {})
    if not isinstance(found, dict):
        raise UserError(
            f"environment openenv: metadata of the problem '{problem.prompt[:40]}' says"
            " 'openenv' and no fields of `reset`; let it be an object"
        )
    return found


def _held(total: float) -> float:
    return min(1.0, max(0.0, total))


def _refused(state: EpisodeState, why: str) -> Situation:
    asks = (Ask(POLICY, (Told("user", why),)),)
    return Situation(state, asks, _NOTHING, facts={"tool_errors": 1.0})


def _broken(state: EpisodeState, error: Exception) -> Situation:
    return Situation(state, failed=f"the server: {error}")
