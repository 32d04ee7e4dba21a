"""Guess a number: what is said of a guess tells where to look."""

from collections.abc import Sequence
from random import Random
from typing import Literal, Self

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

_LONGEST_NUMBER = 100
"""Digits; Python reads no number of some thousand."""


class Guess(World):
    """Guess a hidden number; each guess is told to be too low or too high.

    A turn is a number and nothing else. Halving what is left needs `log2(size + 1)` guesses.

    Source: own world.
    """

    kind: Literal["guess"] = "guess"
    size: int = Field(default=16, ge=2)
    """The number is one of so many."""
    highest: int = Field(default=99, ge=2)
    """The highest number that there may be; which ones come into question each problem says."""
    guesses: int = Field(default=4, ge=1)
    """Guesses that an episode has."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.size > self.highest:
            raise ValueError(f"size {self.size} is above highest {self.highest}; raise highest")
        return self

    def pose(self, draw: Random) -> Posed:
        """Hide a number; see `World.pose`."""
        low = draw.randint(1, self.highest - self.size + 1)
        high = low + self.size - 1
        hidden = draw.randint(low, high)
        facts = {"hidden": hidden, "low": low, "high": high, "left": self.guesses}
        return Posed(f"{low} to {high}, {self.guesses} guesses", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask for a guess; see `World.begin`."""
        return _asked({**facts, "first": [facts["low"], facts["high"]]}, ())

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Compare the guess with the number; see `Environment.step`."""
        said = acts[0].text.strip()
        after = {**state, "left": state["left"] - 1}
        if not said.isdecimal() or len(said) > _LONGEST_NUMBER:
            return _asked(after, (Told("user", "not a number"),), errors=1.0)
        guess = int(said)
        if guess == state["hidden"]:
            return Situation(after, earned={POLICY: 1.0})
        if guess < state["hidden"]:
            after["low"] = max(state["low"], guess + 1)
            return _asked(after, (Told("user", "higher"),))
        after["high"] = min(state["high"], guess - 1)
        return _asked(after, (Told("user", "lower"),))

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Halve what is left; see `World.best_move`."""
        return str((state["low"] + state["high"]) // 2)

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Guess any number; see `World.random_move`."""
        return str(draw.randint(*state["first"]))


def _asked(state: EpisodeState, told: tuple[Told, ...], *, errors: float = 0.0) -> Situation:
    """Ask for a guess, if there is one left."""
    facts = {"tool_errors": errors} if errors else {}
    if not state["left"]:
        return Situation(state, facts=facts)
    key = f"{state['low']}-{state['high']}/{state['left']}"
    return Situation(state, (Ask(POLICY, told),), key=key, facts=facts)
