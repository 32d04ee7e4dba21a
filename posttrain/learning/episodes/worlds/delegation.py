"""Delegation: a question over two sources, each searched by an agent that a planner calls."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts
from posttrain.learning.episodes.worlds.facts import FactSearch, follow, of_problem, passages_like

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_AGENTS = ("local", "web")
_ANSWER = "="
_NOTHING = "nothing"
_LONGEST_WORD = 200


class Delegation(World):
    """Call agents that search, each its own source, and answer by what they found.

    A question is `42 key map`. Passages of the first half of the relations are in the source of
    `local`, the others in that of `web`. The policy's turn is a call, `local 42 key`, or `= 17`,
    the answer. An agent reads `42 key`, as a question of the world `search` is read; its turn is a
    query or `= 17`, its finding. A refiner drops findings that no passage it read says.
    """

    SOURCE = "HierSearch, arXiv 2508.08088: a planner above a local and a web agent"
    SIZES: ClassVar[tuple[str, ...]] = ("entities", "relations", "hops", "calls", "searches")
    ROLES: ClassVar[frozenset[str]] = frozenset(_AGENTS)

    kind: Literal["delegation"] = "delegation"
    entities: int = Field(default=12, ge=3)
    """Things that there are; each has one of each relation, which no other has."""
    relations: int = Field(default=4, ge=2, le=12)
    """Relations that there are; the first half of them is in the source of `local`."""
    hops: int = Field(default=2, ge=1)
    """Relations that a question follows."""
    calls: int = Field(default=3, ge=1)
    """Calls of agents that an episode has; the answer is a turn more."""
    searches: int = Field(default=2, ge=1)
    """Queries of an agent for each call; its finding is a turn more."""
    refined: bool = True
    """Whether the planner reads of findings only what a passage says that the agent has read."""

    @model_validator(mode="after")
    def _can_be_solved(self) -> Self:
        if self.hops > self.calls:
            raise ValueError(
                f"hops {self.hops} is above calls {self.calls}; raise calls, so that each hop can"
                " be asked for"
            )
        return self

    def pose(self, draw: Random) -> Posed:
        """Make facts, share them out, and ask about them; see `World.pose`."""
        made = FactSearch(
            entities=self.entities, relations=self.relations, hops=self.hops, searches=self.hops
        )
        prompt, facts = made.posed_of(draw, draw)
        names = made.names()
        return Posed(
            prompt,
            {
                **{name: facts[name] for name in ("passages", "question", "answer")},
                "local": [*names[: len(names) // 2]],
                "calls": self.calls,
                "searches": self.searches,
                "refined": self.refined,
            },
        )

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin, and keep whose passages they are; see `Environment.start`."""
        return of_problem(super().start(problem, seed), problem)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask the planner; see `World.begin`."""
        idle = {"agent": "", "query": "", "read": [], "searching": 0}
        return _asked({**facts, **idle, "problem": "", "left": facts["calls"], "found": []})

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Call an agent, search for one, or pass its finding on; see `Environment.step`."""
        ((role, text, *_),) = acts
        said = " ".join(text.split())[:_LONGEST_WORD]
        return _planned(state, said) if role == POLICY else _searched(state, said)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Follow the question by calls, or a call by queries; see `World.best_move`."""
        if role != POLICY:
            known = {each.rpartition(" ")[0]: each.rpartition(" ")[2] for each in state["read"]}
            wanted, end = follow(state["query"] or _NOTHING, known)
            return wanted if wanted and state["searching"] else f"{_ANSWER} {end}"
        known = {query: finding for query, finding in state["found"] if finding != _NOTHING}
        wanted, end = follow(state["question"], known)
        if wanted and state["left"]:
            return f"{_source(state, wanted.split()[1])} {wanted}"
        return f"{_ANSWER} {end}"

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Ask for anything, or answer anything; see `World.random_move`."""
        thing, name, _ = draw.choice(state["passages"]).split()
        left, all_of = (
            (state["left"], state["calls"])
            if role == POLICY
            else (state["searching"], state["searches"])
        )
        if not left or draw.random() < 1 / (1 + all_of):
            return f"{_ANSWER} {thing}"
        return f"{draw.choice(_AGENTS)} {thing} {name}" if role == POLICY else f"{thing} {name}"


def _planned(state: EpisodeState, said: str) -> Situation:
    """What the planner's turn leads to."""
    if said.startswith(_ANSWER):
        right = said.removeprefix(_ANSWER).strip() == state["answer"]
        return Situation(state, earned={POLICY: 1.0} if right else {})
    if not state["left"]:
        # Nothing is left but to answer.
        return Situation(state, facts={"tool_errors": 1.0})
    after = {**state, "left": state["left"] - 1}
    agent, _, query = said.partition(" ")
    if agent not in _AGENTS or not query:
        return _asked(after, "local or web?", facts={"tool_errors": 1.0})
    # Each call is of an agent that begins afresh, as it was trained: on one question.
    role = f"{agent}:{state['calls'] - after['left']}"
    after |= {"agent": role, "query": query, "read": [], "searching": state["searches"]}
    return _tell(after, query, {agent: 1.0})


def _searched(state: EpisodeState, said: str) -> Situation:
    """What an agent's turn leads to: a passage, or its finding before the planner."""
    if not said.startswith(_ANSWER) and state["searching"]:
        ours = state["agent"].partition(":")[0]
        wanted = said.split()[:2]
        document = next(
            (
                each
                for each in state["passages"]
                if each.split()[:2] == wanted and _source(state, wanted[1]) == ours
            ),
            _NOTHING,
        )
        read = state["read"] if document == _NOTHING else [*state["read"], document]
        after = {**state, "read": read, "searching": state["searching"] - 1}
        return _tell(after, document, read=passages_like(state, document))
    finding = said.removeprefix(_ANSWER).strip() if said.startswith(_ANSWER) else _NOTHING
    supported = any(each.rpartition(" ")[2] == finding for each in state["read"])
    dropped = state["refined"] and not supported
    told = _NOTHING if dropped or not finding else finding
    facts = {"dropped": 1.0} if dropped and finding != _NOTHING else {}
    found = [*state["found"], [state["query"], told]]
    idle = {"agent": "", "query": "", "read": [], "searching": 0}
    return _asked({**state, **idle, "found": found}, told, facts=facts)


def _source(state: EpisodeState, name: str) -> str:
    return _AGENTS[0] if name in state["local"] else _AGENTS[1]


def _asked(
    state: Mapping[str, Any], text: str = "", *, facts: Mapping[str, float] | None = None
) -> Situation:
    told = (Told("user", text),) if text else ()
    return Situation(state, (Ask(POLICY, told),), key=_key(state), facts=facts or {})


def _tell(
    state: Mapping[str, Any],
    text: str,
    facts: Mapping[str, float] | None = None,
    *,
    read: tuple[str, ...] = (),
) -> Situation:
    asks = (Ask(state["agent"], (Told("user", text),)),)
    return Situation(state, asks, key=_key(state), facts=facts or {}, read=read)


def _key(state: Mapping[str, Any]) -> str:
    agent = f"{state['agent']}/{state['query']}/{state['searching']}/{sorted(state['read'])}"
    return f"{sorted(state['found'])}/{state['left']}/{agent}"
