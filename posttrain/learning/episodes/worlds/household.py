"""Quests in a household: find a thing, perhaps wash, heat or cool it, and put it somewhere."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
    Told,
)
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

Quest = Literal["put", "wash", "heat", "cool", "two"]

# Where a thing is treated, and how it is called then.
_TREATMENTS: Mapping[str, tuple[str, str]] = {
    "wash": ("sink", "clean"),
    "heat": ("stove", "hot"),
    "cool": ("fridge", "cold"),
}
_THINGS = ("apple", "bread", "cup", "egg", "knife", "mug", "pan", "plate", "potato", "spoon")
_SHUT = ("fridge", "drawer", "cabinet", "box")
_PLACES = ("shelf", "drawer", "table", "cabinet", "counter", "box", "bed", "desk")


class Household(World):
    """Bring a thing to a place as it should be: clean, hot, cold, or two of a kind.

    Each subgoal pays its share when it is reached for the first time: to hold the thing, to have
    it treated, to have it in its place. They add up to 1. What is in a place is read there, once
    it is open.

    Source: own world, with tasks like those of ALFWorld, arXiv 2010.03768.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("places", "things")

    kind: Literal["household"] = "household"
    quests: tuple[Quest, ...] = Field(default=("put", "wash", "heat", "cool", "two"), min_length=1)
    """Kinds of quests, of which each problem draws one."""
    places: int = Field(default=4, ge=2, le=2 * len(_PLACES))
    """Places beside sink, stove and fridge."""
    things: int = Field(default=4, ge=1, le=len(_THINGS))
    """Kinds of things that lie about."""
    turns: int = Field(default=24, ge=1)
    """Turns of an episode."""

    def pose(self, draw: Random) -> Posed:
        """Lay out a household, and ask for something; see `World.pose`."""
        quest = draw.choice(self.quests)
        names = [f"{place} {number}" for number in (1, 2) for place in _PLACES]
        chosen = sorted(draw.sample(names, self.places))
        places = [*(place for place, _ in _TREATMENTS.values()), *chosen]
        kinds = draw.sample(_THINGS, self.things)
        goal, wanted = draw.choice(chosen), kinds[0]
        lies: dict[str, list[str]] = {place: [] for place in places}
        for thing in [*kinds, *([wanted] if quest == "two" else [])]:
            # What is wanted lies elsewhere, or nothing would be left to do.
            where = [place for place in places if thing != wanted or place != goal]
            lies[draw.choice(where)].append(thing)
        facts = {
            "quest": quest,
            "wanted": wanted,
            "goal": goal,
            "start": draw.choice(places),
            "lies": {place: sorted(laid) for place, laid in lies.items()},
            "turns": self.turns,
        }
        how = {"put": "", "two": "two "}.get(quest) or f"{_condition(quest)} "
        prompt = (
            f"{how.lstrip()}{wanted} to {goal}\nplaces {', '.join(places)}\n"
            f"go, open, take, put, wash, heat, cool\n{_read(_entered(facts))}"
        )
        return Posed(prompt, facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for the first turn; see `World.begin`."""
        return _asked(_entered(facts))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Do what is said, if it can be done; see `Environment.step`."""
        said = acts[0].text.strip()
        left = state["left"] - 1
        if said not in _commands(state):
            return _asked({**state, "left": left}, "you cannot; ", errors=1.0)
        after = {**state, **_changed(state, said), "left": left}
        reached, last = max(state["reached"], _reached(after)), _subgoals(state)
        after["reached"] = reached
        # Differences of shares, which add up to 1 to the last bit.
        earned = reached / last - state["reached"] / last
        if reached == last:
            return Situation({**after, "left": 0}, earned={POLICY: earned})
        return _asked(after, earned=earned)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Do the next thing, or look where it was not looked yet; see `World.best_move`."""
        here, has = state["at"], state["has"]
        if has and not _fits(state, has):
            if _kind(has) != state["wanted"]:
                return _at_open(state, here, f"put {has}")
            return _at_open(state, _TREATMENTS[state["quest"]][0], f"{state['quest']} {has}")
        if has:
            return _at_open(state, state["goal"], f"put {has}")
        for place in state["seen"]:
            for each in state["lies"][place]:
                is_done = place == state["goal"] and _fits(state, each)
                if _kind(each) == state["wanted"] and not is_done:
                    return _at_open(state, place, f"take {each}")
        unseen = [place for place in state["lies"] if place not in state["seen"]]
        if here in unseen:
            return "open"
        return f"go {draw.choice(unseen)}" if unseen else self.random_move(state, role, draw)

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Do anything that can be done here, or go somewhere; see `World.random_move`."""
        places = [place for place in state["lies"] if place != state["at"]]
        here = [each for each in _commands(state) if not each.startswith("go ")]
        return draw.choice([*here, f"go {draw.choice(places)}"])


def _entered(facts: WorldFacts) -> dict[str, Any]:
    """The state in which an episode begins."""
    at = facts["start"]
    seen = [] if at.split()[0] in _SHUT else [at]
    begun = {"at": at, "has": "", "opened": [], "seen": seen, "reached": 0}
    return {**facts, **begun, "left": facts["turns"]}


def _condition(quest: str) -> str:
    return _TREATMENTS.get(quest, ("", ""))[1]


def _kind(thing: str) -> str:
    return thing.split()[-1]


def _fits(state: Mapping[str, Any], thing: str) -> bool:
    """Tell whether a thing is what is to be brought, and as it should be."""
    condition = _condition(state["quest"])
    return _kind(thing) == state["wanted"] and thing.startswith(condition)


def _is_shut(state: Mapping[str, Any], place: str) -> bool:
    return place.split()[0] in _SHUT and place not in state["opened"]


def _subgoals(state: Mapping[str, Any]) -> int:
    """How many there are: to hold and to place, twice for two, and to treat."""
    return {"put": 2, "two": 4}.get(state["quest"], 3)


def _reached(state: Mapping[str, Any]) -> int:
    """How many subgoals the situation shows."""
    placed = sum(_fits(state, each) for each in state["lies"][state["goal"]])
    holds = _kind(state["has"]) == state["wanted"] if state["has"] else False
    if state["quest"] == "two":
        return min(4, 2 * placed + holds)
    return _subgoals(state) if placed else holds + (holds and _is_treated(state))


def _is_treated(state: Mapping[str, Any]) -> bool:
    return bool(_condition(state["quest"])) and _fits(state, state["has"])


def _commands(state: Mapping[str, Any]) -> list[str]:
    """All that can be done."""
    here, has = state["at"], state["has"]
    going = [f"go {place}" for place in state["lies"] if place != here]
    if _is_shut(state, here):
        return ["open", *going]
    if not has:
        return [*(f"take {each}" for each in state["lies"][here]), *going]
    treated = [f"{verb} {has}" for verb, (place, _) in _TREATMENTS.items() if place == here]
    return [f"put {has}", *treated, *going]


def _changed(state: EpisodeState, command: str) -> dict[str, Any]:
    """What a command that can be done changes."""
    verb, _, what = command.partition(" ")
    here, lies = state["at"], state["lies"]
    if verb == "take":
        rest = list(lies[here])
        rest.remove(what)
        return {"has": what, "lies": {**lies, here: rest}}
    if verb == "put":
        return {"has": "", "lies": {**lies, here: sorted([*lies[here], what])}}
    if verb in _TREATMENTS:
        return {"has": f"{_condition(verb)} {_kind(what)}"}
    at = what if verb == "go" else here
    opened = state["opened"] if verb == "go" else sorted([*state["opened"], here])
    sees = not _is_shut({**state, "opened": opened}, at)
    seen = sorted({*state["seen"], at}) if sees else state["seen"]
    return {"at": at, "opened": opened, "seen": seen}


def _at_open(state: EpisodeState, place: str, command: str) -> str:
    """Say a command where it can be done, or what comes before it."""
    if state["at"] != place:
        return f"go {place}"
    return "open" if _is_shut(state, place) else command


def _read(state: Mapping[str, Any]) -> str:
    """What is read in a situation, which names it too."""
    here = state["at"]
    there = "shut" if _is_shut(state, here) else ", ".join(state["lies"][here]) or "nothing"
    return f"{here}: {there}" + (f"; has {state['has']}" if state["has"] else "")


def _asked(
    state: EpisodeState, first: str = "", *, earned: float = 0.0, errors: float = 0.0
) -> Situation:
    """Ask for a turn, if there is one left."""
    facts = {"tool_errors": errors} if errors else {}
    paid = {POLICY: earned} if earned else {}
    if not state["left"]:
        return Situation(state, earned=paid, facts=facts)
    read = _read(state)
    told = (Told("user", first + read),) if state["left"] < state["turns"] else ()
    return Situation(state, (Ask(POLICY, told),), paid, read, facts)
