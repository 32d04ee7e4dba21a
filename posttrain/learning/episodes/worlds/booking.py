"""A booking: a user wants something and leaves out what is needed for it."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import ClassVar, Literal

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

_USER = "user"
_SLOTS: Mapping[str, Sequence[str]] = {
    "day": ("mon", "tue", "wed", "thu", "fri", "sat", "sun"),
    "time": ("5pm", "6pm", "7pm", "8pm", "9pm"),
    "for": ("1", "2", "3", "4", "5", "6", "7", "8"),
    "name": ("ann", "bob", "cem", "dora", "eve", "finn", "gita"),
    "room": ("bar", "hall", "garden", "roof"),
    "pay": ("card", "cash", "bill"),
}
_LONGEST_WORD_OF_A_USER = 200


class Booking(World):
    """Ask a user for what a booking still needs, and for nothing else; then book.

    A turn is a question, `day?`, or the last: `book fri 7pm 2`, what was said in the order of the
    form. A booking with all that the user wants, of which all has been said, earns 1, less `cost`
    for every question about what had been said already; any other earns nothing.

    Source: own world.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("slots", "missing", "noise")
    ROLES: ClassVar[frozenset[str]] = frozenset({_USER})

    kind: Literal["booking"] = "booking"
    slots: int = Field(default=4, ge=2, le=len(_SLOTS))
    """What a booking needs: so many of day, time, for, name, room and pay."""
    missing: int = Field(default=3, ge=0)
    """Most that the user leaves out at first; how many each problem draws."""
    cost: float = Field(default=0.25, ge=0.0, le=1.0)
    """What a question costs whose answer was said before."""
    noise: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Probability that the user answers off the point: says something else of the booking."""
    spare: int = Field(default=3, ge=0)
    """Questions that an episode has beyond one for each slot."""
    user: Literal["script", "role"] = "script"
    """Who answers: this world, or the role `user`, which reads what it wants and the questions."""

    def pose(self, draw: Random) -> Posed:
        """Choose what the user wants, and what is left out; see `World.pose`."""
        form = [*_SLOTS][: self.slots]
        wish = {slot: draw.choice(_SLOTS[slot]) for slot in form}
        said = draw.sample(form, self.slots - draw.randint(0, min(self.missing, self.slots)))
        facts = {
            "wish": wish,
            "said": said,
            "cost": self.cost,
            "noise": self.noise,
            "left": self.slots + self.spare + 1,
            "tape": draw.getrandbits(32),
            "user": self.user,
        }
        return Posed(f"book {' '.join(form)}: {_mentioned(wish, said) or 'please'}", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the tape decides
        """Ask the policy; see `World.begin`."""
        state = {**facts, "asked": dict.fromkeys(facts["wish"], 0), "needless": 0, "met": False}
        return _asked(state, ())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Answer a question, or book; see `Environment.step`."""
        ((role, text, *_),) = acts
        if role == _USER:
            return _answered(state, text)
        wish, said = state["wish"], text.strip()
        after = {**state, "left": state["left"] - 1}
        if said.startswith("book "):
            known = set(state["said"]) == set(wish)
            right = known and said.split()[1:] == [*wish.values()]
            worth = max(0.0, 1.0 - state["cost"] * state["needless"]) if right else 0.0
            return Situation(after, earned={POLICY: worth} if worth else {})
        slot = said.removesuffix("?")
        if not said.endswith("?") or slot not in wish:
            return _asked(after, (Told("user", "what?"),), facts={"tool_errors": 1.0})
        needless = slot in state["said"]
        after["asked"] = {**state["asked"], slot: state["asked"][slot] + 1}
        after["about"], after["needless"] = slot, state["needless"] + needless
        facts = {"needless": 1.0} if needless else {}
        if not after["left"]:
            return Situation(after, facts=facts)
        if state["user"] == "script":
            return _answered(after, _answer(after))._replace(facts=facts)
        rules = "" if state["met"] else f"You want {_mentioned(wish, [*wish])}. "
        asks = (Ask(_USER, (Told("user", f"{rules}{slot}?"),)),)
        return Situation({**after, "met": True}, asks, key=_key(after, slot), facts=facts)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Ask for the first that was not said, or book; see `World.best_move`."""
        if role == _USER:
            return _answer(state)
        missing = [slot for slot in state["wish"] if slot not in state["said"]]
        return f"{missing[0]}?" if missing else f"book {' '.join(state['wish'].values())}"

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:
        """Ask for anything, or book anything; see `World.random_move`."""
        form = [*state["wish"]]
        values = {slot: draw.choice(_SLOTS[slot]) for slot in form}
        slot = draw.choice([*form, None])
        if role == _USER:
            slot = slot or form[0]
            return f"{slot} {values[slot]}"
        return f"{slot}?" if slot else f"book {' '.join(values.values())}"


def _answer(state: EpisodeState) -> str:
    """What the script of the user says of the slot that it was asked about."""
    wish, slot = state["wish"], state["about"]
    # An answer depends on how often the slot was asked about, and is alike in a group's episodes.
    draw = Random(f"{state['tape']}/{slot}/{state['asked'][slot]}")
    if draw.random() < state["noise"]:
        slot = draw.choice([each for each in wish if each != slot])
    return _mentioned(wish, [slot])


def _answered(state: EpisodeState, text: str) -> Situation:
    """Tell the policy what the user said, and note what it told of the booking."""
    told = " ".join(text.split())[:_LONGEST_WORD_OF_A_USER] or "well"
    new = [
        slot
        for slot in state["wish"]
        if slot not in state["said"] and _told_of(told, slot, state["wish"][slot])
    ]
    return _asked({**state, "said": [*state["said"], *new]}, (Told("user", told),))


def _told_of(text: str, slot: str, value: str) -> bool:
    return f" {slot} {value} " in f" {text.replace(',', ' ').replace('.', ' ')} "


def _mentioned(wish: Mapping[str, str], slots: Sequence[str]) -> str:
    return " ".join(f"{slot} {wish[slot]}" for slot in slots)


def _asked(
    state: EpisodeState, told: tuple[Told, ...], *, facts: Mapping[str, float] | None = None
) -> Situation:
    """Ask the policy, if it has a turn left."""
    asks = (Ask(POLICY, told),) if state["left"] else ()
    return Situation(state, asks, key=_key(state, ""), facts=facts or {})


def _key(state: EpisodeState, about: str) -> str:
    def parts() -> Iterator[str]:
        yield from sorted(state["said"])
        yield f"{state['needless']}/{state['left']}/{about}"

    return " ".join(parts())
