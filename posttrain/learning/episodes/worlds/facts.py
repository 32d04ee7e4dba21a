"""Facts: a question of several hops, answered by passages that must be searched for."""

from collections.abc import Iterable, Mapping, Sequence
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
from posttrain.learning.episodes.retrieval import best_passages
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_RELATIONS = ("key", "map", "hat", "box", "cup", "pen", "fan", "jar", "lid", "net", "rug", "toy")
_ANSWER = "="


class FactSearch(World):
    """Follow relations from one thing to the next: `42 key map` asks for the map of 42's key.

    A passage is `42 key 17`: the key of 42 is 17. A turn is a query, to which the best passages by
    BM25 are read, or `= 17`, the answer, which ends the episode. Things are numbers that mean
    nothing: what a policy knows of a problem it has searched for. `gold` counts the passages read
    that the answer stands on, and `supported` the right answers for which all of them were.

    Source: own world; passages by BM25 as the package bm25s ranks them.
    """

    PACKAGES: ClassVar[frozenset[str]] = frozenset({"bm25s"})
    SIZES: ClassVar[tuple[str, ...]] = ("entities", "relations", "hops", "searches")

    kind: Literal["facts"] = "facts"
    entities: int = Field(default=20, ge=3)
    """Things that there are; each has one of each relation, which no other has."""
    relations: int = Field(default=4, ge=1, le=len(_RELATIONS))
    """Relations that there are."""
    hops: int = Field(default=2, ge=1)
    """Relations that a question follows."""
    searches: int = Field(default=4, ge=1)
    """Queries that an episode has; the answer is a turn more."""
    shown: int = Field(default=2, ge=2)
    """Passages that a query shows. Which of two things has the other, BM25 cannot tell, so the
    passage asked for is one of the best two."""

    @model_validator(mode="after")
    def _can_be_solved(self) -> Self:
        if self.hops > self.searches:
            raise ValueError(
                f"hops {self.hops} is above searches {self.searches}; raise searches, so that each"
                " hop can be looked up"
            )
        return self

    def pose(self, draw: Random) -> Posed:
        """Make facts, and a question that some of them answer; see `World.pose`."""
        return self.posed_of(draw, draw)

    def posed_of(self, there: Random, draw: Random, skipped: int = 0) -> Posed:
        """Make facts by one chance, and a question about them by another.

        Args:
            there: Where the chance of the facts comes from: equally begun, it makes equal facts.
            draw: Chooses the question; may be the same, which then goes on.
            skipped: Relations that are passed over, of those that there could be.

        Returns:
            The problem.

        """
        things = _names(self.entities, there)
        relations = self.names(skipped)
        has = {name: _one_each(things, there) for name in relations}
        triples = [(thing, name, has[name][thing]) for name in relations for thing in things]
        there.shuffle(triples)
        at, asked, gold = draw.choice(things), draw.choices(relations, k=self.hops), []
        prompt = " ".join([at, *asked])
        for name in asked:
            gold.append(triples.index((at, name, has[name][at])))
            at = has[name][at]
        facts = {
            "passages": [" ".join(each) for each in triples],
            "gold": sorted(set(gold)),
            "question": prompt,
            "answer": at,
            "searches": self.searches,
            "shown": self.shown,
        }
        return Posed(prompt, facts)

    def names(self, skipped: int = 0) -> tuple[str, ...]:
        """Name the relations that there are, behind so many others that there could be."""
        return _RELATIONS[skipped : skipped + self.relations]

    def start(self, problem: "Problem", seed: int) -> Situation:
        """Begin, and keep whose passages they are; see `Environment.start`."""
        return of_problem(super().start(problem, seed), problem)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for a query, or the answer; see `World.begin`."""
        return _asked({**facts, "problem": "", "left": facts["searches"], "read": []})

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Show the best passages, or compare the answer; see `Environment.step`."""
        said = acts[0].text.strip()
        if said.startswith(_ANSWER):
            return _answered(state, said.removeprefix(_ANSWER).strip())
        if not state["left"]:
            # Nothing is left but to answer.
            return Situation(state, facts={"tool_errors": 1.0})
        after = {**state, "left": state["left"] - 1}
        passages: Sequence[str] = state["passages"]
        found = best_passages(tuple(passages), said, state["shown"])
        if not found:
            return _asked(after, "nothing", facts={"tool_errors": 1.0})
        new = [place for place in found if place not in state["read"]]
        after["read"] = [*state["read"], *new]
        shown = passage_ids(state, found)
        gold = float(len(set(new) & set(state["gold"])))
        text = "; ".join(passages[place] for place in found)
        return _asked(after, text, facts={"gold": gold} if gold else {}, read=shown)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Look the next hop up, or answer behind the last; see `World.best_move`."""
        read = (state["passages"][place].rpartition(" ") for place in state["read"])
        wanted, end = follow(state["question"], {asked: other for asked, _, other in read})
        return wanted or f"{_ANSWER} {end}"

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Ask for anything, or answer anything; see `World.random_move`."""
        thing, name, _ = draw.choice(state["passages"]).split()
        answers = not state["left"] or draw.random() < 1 / (1 + state["searches"])
        return f"{_ANSWER} {thing}" if answers else f"{thing} {name}"


def of_problem(situation: Situation, problem: "Problem") -> Situation:
    """Keep in a first situation whose passages are read.

    Args:
        situation: Where an episode begins.
        problem: That brings passages along.

    Returns:
        The same, with the problem's id as `problem` of its state.

    """
    return situation._replace(state={**situation.state, "problem": problem.id})


def passage_ids(state: EpisodeState, places: Iterable[int]) -> tuple[str, ...]:
    """Name passages of an episode's problem as `Situation.read` does.

    Args:
        state: Of the episode, with the problem's id.
        places: Of the passages, from 0.

    Returns:
        `PROBLEM:N` of each.

    """
    return tuple(f"{state['problem']}:{place + 1}" for place in places)


def passages_like(state: EpisodeState, document: str) -> tuple[str, ...]:
    """Name the passages that a document is, word for word; none where somebody made it up.

    Args:
        state: Of the episode, with the problem's id and its passages.
        document: That was shown.

    Returns:
        `PROBLEM:N` of each.

    """
    passages = enumerate(state["passages"])
    return passage_ids(state, (place for place, each in passages if each == document))


def follow(question: str, known: Mapping[str, str]) -> tuple[str, str]:
    """Follow a question as far as what is known leads.

    Args:
        question: A thing, and the relations to follow from it: `42 key map`.
        known: Thing and relation -> the thing that it leads to: `42 key` -> `17`.

    Returns:
        The first hop that is not known, empty where all are; and the thing that one gets to.

    """
    at, *asked = question.split()
    for name in asked:
        if f"{at} {name}" not in known:
            return f"{at} {name}", at
        at = known[f"{at} {name}"]
    return "", at


def _names(count: int, draw: Random) -> list[str]:
    """Numbers of equally many digits, in the order of chance."""
    digits = 1
    while 9 * 10 ** (digits - 1) < count:
        digits += 1
    low = 10 ** (digits - 1)
    return [str(each) for each in draw.sample(range(low, 10 * low), count)]


def _one_each(things: Sequence[str], draw: Random) -> dict[str, str]:
    """Give each thing another one, which no other is given."""
    ring = draw.sample(things, len(things))
    return dict(zip(ring, [*ring[1:], ring[0]], strict=True))


def _answered(state: EpisodeState, said: str) -> Situation:
    right = said == state["answer"]
    supported = right and set(state["gold"]) <= set(state["read"])
    earned = {POLICY: 1.0} if right else {}
    return Situation(state, earned=earned, facts={"supported": 1.0} if supported else {})


def _asked(
    state: EpisodeState,
    text: str = "",
    *,
    facts: Mapping[str, float] | None = None,
    read: tuple[str, ...] = (),
) -> Situation:
    told = (Told("user", text),) if text else ()
    key = f"{sorted(state['read'])}/{state['left']}"
    return Situation(state, (Ask(POLICY, told),), key=key, facts=facts or {}, read=read)
