"""Search: a question of several hops, put to a search engine that somebody plays."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal, Self

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
from posttrain.stage.schedule import Schedulable
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

ENGINE = "engine"
_ANSWER = "="
_USEFUL, _NOISY = "useful", "noisy"
_LONGEST_DOCUMENT = 400
_MOST_RELATIONS = 12


class SimulatedSearch(World, Schedulable):
    """Follow relations by a search engine that somebody plays: the role `engine`.

    A question is `42 key map`, the map of 42's key. A turn is a query, `42 key`, or `= 17`, the
    answer, which ends the episode. The engine reads question, answer and query, and whether its
    document shall be useful or noise; what it says is what the policy reads. Its script gives
    the passage asked for, and as noise one about another thing. `noisy` counts what was noise.

    Source: own world; an engine that a model plays is ZeroSearch's, arXiv 2505.04588.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("entities", "relations", "hops", "searches", "noise")
    ROLES: ClassVar[frozenset[str]] = frozenset({ENGINE})
    FIXED: ClassVar[frozenset[str]] = frozenset(
        {"entities", "relations", "skipped", "hops", "searches", "shared"}
    )

    SET_BY_STAGES: ClassVar[frozenset[str]] = frozenset({"noise", "informed"})

    kind: Literal["search"] = "search"
    entities: int = Field(default=20, ge=3)
    """Things that there are; each has one of each relation, which no other has."""
    relations: int = Field(default=4, ge=1, le=_MOST_RELATIONS)
    """Relations that there are."""
    skipped: int = Field(default=0, ge=0, le=11)
    """Relations passed over: a source of its own has others than that of who skips none."""
    hops: int = Field(default=2, ge=1)
    """Relations that a question follows."""
    searches: int = Field(default=4, ge=1)
    """Queries that an episode has; the answer is a turn more."""
    noise: float | None = Field(default=None, ge=0.0, le=1.0)
    """Probability that a query is answered by noise. Of a source: for its problems, never if
    null. Of a stage: in place of the problems' own; in RL it may be a schedule of the step."""
    informed: bool | None = None
    """Whether the engine reads question and answer, and whether its document shall be useful or
    noise, as one that is simulated does; else it reads queries alone, and none is noise. Of a
    source for its problems, yes if null; of a stage in place of the problems' own."""
    shared: int | None = Field(default=None, ge=0)
    """Seed of facts that all problems share, so that a model can know them by heart; null gives
    each problem facts of its own."""

    @model_validator(mode="after")
    def _can_be_solved(self) -> Self:
        if self.relations + self.skipped > _MOST_RELATIONS:
            raise ValueError(
                f"relations {self.relations} and skipped {self.skipped} are more than the"
                f" {_MOST_RELATIONS} that there are; lower one of them"
            )
        if self.hops > self.searches:
            raise ValueError(
                f"hops {self.hops} is above searches {self.searches}; raise searches, so that each"
                " hop can be looked up"
            )
        return self

    def pose(self, draw: Random) -> Posed:
        """Make facts, or take the shared ones, and ask about them; see `World.pose`."""
        shared = self.shared
        there = draw if shared is None else Random(stable_seed(shared, self.kind, "facts"))
        prompt, facts = self._facts().posed_of(there, draw, self.skipped)
        kept = {name: facts[name] for name in ("passages", "question", "answer", "searches")}
        told = {"noise": self.noise or 0.0, "informed": self.informed is not False}
        return Posed(prompt, {**kept, **told})

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin, and keep whose passages they are; see `Environment.start`."""
        return of_problem(super().start(problem, seed), problem)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for a query, or the answer; see `World.begin`."""
        idle = {"problem": "", "read": [], "query": "", "noisy": False}
        return _asked({**facts, **idle, "left": facts["searches"]})

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Pass a query on to the engine, or its document to the policy; see `Environment.step`."""
        ((role, text, *_),) = acts
        if role == ENGINE:
            document = " ".join(text.split())[:_LONGEST_DOCUMENT] or "nothing"
            after = {**state, "read": [*state["read"], document], "query": ""}
            read = passages_like(state, document)
            return _asked(after, document, facts={"noisy": float(state["noisy"])}, read=read)
        said = " ".join(text.split())
        if said.startswith(_ANSWER):
            right = said.removeprefix(_ANSWER).strip() == state["answer"]
            return Situation(state, earned={POLICY: 1.0} if right else {})
        if not state["left"]:
            # Nothing is left but to answer.
            return Situation(state, facts={"tool_errors": 1.0})
        informed = state["informed"] if self.informed is None else self.informed
        noise = state["noise"] if self.noise is None else self.noise
        noisy = informed and Random(seed).random() < noise
        query = said[:_LONGEST_DOCUMENT] or "nothing"
        after = {**state, "left": state["left"] - 1, "query": query, "noisy": noisy}
        text = query
        if informed:
            about = f"{state['question']} = {state['answer']}"
            text = f"{about}; {_NOISY if noisy else _USEFUL}: {query}"
        return Situation(after, (Ask(ENGINE, (Told("user", text),)),), key=_key(after))

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Look the next hop up until it is found, or answer; see `World.best_move`."""
        if role == ENGINE:
            return _document(state["passages"], state["query"], noisy=state["noisy"], draw=draw)
        wanted, end = follow(state["question"], _known(state["read"]))
        return wanted if wanted and state["left"] else f"{_ANSWER} {end}"

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Ask for anything, or answer anything; see `World.random_move`."""
        passage: str = draw.choice(state["passages"])
        if role == ENGINE:
            return passage
        thing, name, _ = passage.split()
        answers = not state["left"] or draw.random() < 1 / (1 + state["searches"])
        return f"{_ANSWER} {thing}" if answers else f"{thing} {name}"

    def _facts(self) -> FactSearch:
        return FactSearch(
            entities=self.entities,
            relations=self.relations,
            hops=self.hops,
            searches=self.searches,
        )


def _document(passages: Sequence[str], query: str, *, noisy: bool, draw: Random) -> str:
    """The passage that says what is asked for, or one that says it of another thing."""
    words = query.split()
    thing, name = (*words, "", "")[:2]
    said = [each for each in passages if each.split()[1] == name]
    if noisy:
        return draw.choice([each for each in said if each.split()[0] != thing] or passages)
    return next((each for each in said if each.split()[0] == thing), "nothing")


def _known(read: Sequence[str]) -> Mapping[str, str]:
    """What documents say, of whichever three words in a row; the first that says it holds."""
    known: dict[str, str] = {}
    for document in read:
        words = document.replace(",", " ").replace(".", " ").split()
        for thing, name, other in zip(words, words[1:], words[2:], strict=False):
            known.setdefault(f"{thing} {name}", other)
    return known


def _asked(
    state: EpisodeState,
    text: str = "",
    *,
    facts: Mapping[str, float] | None = None,
    read: tuple[str, ...] = (),
) -> Situation:
    told = (Told("user", text),) if text else ()
    return Situation(state, (Ask(POLICY, told),), key=_key(state), facts=facts or {}, read=read)


def _key(state: EpisodeState) -> str:
    return f"{sorted(state['read'])}/{state['left']}/{state['query']}/{state['noisy']}"
