"""A bandit: buttons that pay by chance, to be tried out and then kept to."""

from collections.abc import Mapping, Sequence
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


class Bandit(World):
    """Press one of some buttons again and again; each pays 1 with a probability of its own.

    A turn is a button's letter. An episode is worth the share of the best button's pay that its
    presses would have on average, above that of pressing at random: 1 is to press the best one
    always. `regret` is what was lost to it, in presses that pay.
    """

    SOURCE: ClassVar[str] = "EVOLvE, arXiv 2410.06238, section 3: Bernoulli arms"
    SIZES: ClassVar[tuple[str, ...]] = ("arms", "presses", "gap")

    kind: Literal["bandit"] = "bandit"
    arms: int = Field(default=3, ge=2, le=26)
    """Buttons, called a, b, c and so on."""
    presses: int = Field(default=8, ge=1)
    """Turns of an episode."""
    gap: float = Field(default=0.6, gt=0.0, le=1.0)
    """By how much the best button's probability is above that of all the others."""

    def pose(self, draw: Random) -> Posed:
        """Choose the best button, and how often the others pay; see `World.pose`."""
        worse = round(draw.uniform(0.0, 1.0 - self.gap), 3)
        means = [worse] * self.arms
        means[draw.randrange(self.arms)] = round(worse + self.gap, 3)
        last = chr(ord("a") + self.arms - 1)
        facts = {"means": means, "presses": self.presses, "tape": draw.getrandbits(32)}
        return Posed(f"Press a to {last}, {self.presses} times.", facts)

    def begin(self, facts: WorldFacts, seed: int) -> Situation:  # noqa: ARG002 - the tape decides
        """Ask for a press; see `World.begin`."""
        arms = len(facts["means"])
        return _asked({**facts, "tries": [0] * arms, "wins": [0] * arms, "left": facts["presses"]})

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Pay, or do not; see `Environment.step`."""
        said, means = acts[0].text.strip(), state["means"]
        arm = ord(said) - ord("a") if len(said) == 1 else -1
        after = {**state, "left": state["left"] - 1}
        if not 0 <= arm < len(means):
            lost = {"regret": max(means), "tool_errors": 1.0}
            return _asked(after, (Told("user", "no such button"),), facts=lost)
        # The n-th press of a button pays alike in all episodes of a problem, which then differ by
        # what was pressed alone.
        pays = Random(f"{state['tape']}/{arm}/{state['tries'][arm]}").random() < means[arm]
        after["tries"] = _raised(state["tries"], arm, 1)
        after["wins"] = _raised(state["wins"], arm, int(pays))
        worth = (means[arm] - min(means)) / (max(means) - min(means)) / state["presses"]
        facts = {"regret": max(means) - means[arm]}
        return _asked(after, (Told("user", str(int(pays))),), earned=worth, facts=facts)

    def best_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Press what may pay best, by UCB1; see `World.best_move`."""
        import math

        total = 1 + sum(state["tries"])

        def bound(arm: int) -> float:
            tries, wins = state["tries"][arm], state["wins"][arm]
            if not tries:
                return 2.0
            return float(wins / tries + math.sqrt(0.25 * math.log(total) / tries))

        return chr(ord("a") + max(range(len(state["tries"])), key=bound))

    def random_move(self, state: EpisodeState, role: str, draw: Random) -> str:  # noqa: ARG002
        """Press any button; see `World.random_move`."""
        return chr(ord("a") + draw.randrange(len(state["means"])))


def _raised(counts: Sequence[int], place: int, by: int) -> list[int]:
    return [count + by * (index == place) for index, count in enumerate(counts)]


def _asked(
    state: EpisodeState,
    told: tuple[Told, ...] = (),
    *,
    earned: float = 0.0,
    facts: Mapping[str, float] | None = None,
) -> Situation:
    """Ask for a press, if there is one left."""
    asks = (Ask(POLICY, told),) if state["left"] else ()
    key = f"{state['tries']}{state['wins']}/{state['left']}"
    return Situation(state, asks, {POLICY: earned} if earned else {}, key, facts or {})
