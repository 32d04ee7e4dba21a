"""Products of numbers that are too long to multiply in one's head, and a calculator at hand."""

from collections.abc import Sequence
from random import Random
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    EpisodeState,
    Situation,
)
from posttrain.learning.episodes.environments.calculator import Calculator, computed
from posttrain.learning.episodes.worlds.base import Posed, World, WorldFacts

_CALCULATOR = Calculator()


class Products(World):
    """Multiply numbers; a turn that ends in `calculate(12 * 34)` is computed, any other answers.

    An answer is the product and nothing else. The policy writes itself what is computed, and copies
    what it reads.

    Source: own world.
    """

    SIZES: ClassVar[tuple[str, ...]] = ("digits", "factors", "calls")

    kind: Literal["products"] = "products"
    digits: int = Field(default=3, ge=1, le=9)
    """Digits of each factor."""
    factors: int = Field(default=2, ge=2, le=3)
    """Numbers that are multiplied."""
    calls: int = Field(default=2, ge=0)
    """Calls that an episode has, of which each is a turn; 0 takes the calculator away."""

    def pose(self, draw: Random) -> Posed:
        """Draw the factors; see `World.pose`."""
        low, high = max(2, 10 ** (self.digits - 1)), 10**self.digits - 1
        asked = " * ".join(str(draw.randint(low, high)) for _ in range(self.factors))
        return Posed(asked, {"asked": asked, "calls": self.calls})

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - nothing is drawn
        """Ask; see `World.begin`."""
        state = {"asked": facts["asked"], "left": facts["calls"], "read": ""}
        return Situation(state, (Ask(POLICY),), key=_key(state))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:
        """Compute what is called for, or judge the answer; see `Environment.step`."""
        answered = _CALCULATOR.step({}, acts, seed)
        if not answered.asks or not state["left"]:
            right = acts[0].text.strip() == str(computed(state["asked"]))
            return Situation(state, earned={POLICY: 1.0} if right else {})
        (told,) = answered.asks[0].new
        after = {**state, "left": state["left"] - 1, "read": told.text}
        return Situation(after, answered.asks, key=_key(after), facts=answered.facts)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Call once and copy, or multiply where nothing can be called; see `World.best_move`."""
        product = str(computed(state["asked"]))
        if state["left"] and state["read"] != product:
            return f"{_CALCULATOR.name}({state['asked']})"
        return product

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Say a number of about the product's length; see `World.random_move`."""
        most = "".join("9" if each.isdecimal() else "" for each in state["asked"])
        return str(draw.randint(1, int(most)))

    def authors(self) -> tuple[str, ...]:
        """Name who speaks; see `Environment.authors`."""
        return _CALCULATOR.authors()


def _key(state: EpisodeState) -> str:
    return f"{state['left']}/{state['read']}"
