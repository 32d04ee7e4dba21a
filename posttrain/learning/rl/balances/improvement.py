"""A mixture of objectives that follows what was seen to improve them."""

import math
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import Field

from posttrain.learning.rl.balances.base import OWN_ROLLOUTS, Balance, BalanceAtWork
from posttrain.stage.seeds import stable_seed

_LEFT = 0.005
"""Share that each objective keeps which is not explored."""


class ImprovementBalance(Balance):
    """Choose the mixture of the rehearsals that is expected to improve all of them most.

    Every `every` steps the mean losses are compared with those before, which gives each objective a
    reward for the mixture at work. Of many mixtures drawn by chance, those with the highest sum of
    expected rewards are averaged; or now and then one or two objectives are tried by themselves.
    What is expected of a mixture is the mean of the rewards seen, each by how near its losses and
    its mixture are. Draws depend on the number of the
    decision, and on the losses of the first steps: each run explores in its own way.
    """

    SOURCE = (
        "Birdie, arXiv 2411.01030; samblouir/birdie at b81f78e, birdie_rl/birdie_reward_model/"
        "agent_bird.py (calculate_reward, mass_sample, sample), birdie.py"
    )

    kind: Literal["improvement"] = "improvement"
    """To what was seen to help, with some exploration."""
    every: int = Field(default=5, ge=1)
    """Steps between decisions, over which losses are averaged."""
    rollouts: float = Field(default=0.0, ge=0.0)
    """Weight of the policy's own rollouts, which are not in the mixture."""
    candidates: int = Field(default=512, ge=4)
    """Mixtures that are compared in a decision."""
    best: int = Field(default=8, ge=1)
    """So many of them are averaged."""
    explore: float = Field(default=0.5, ge=0.0, le=1.0)
    """Share of the decisions that try one or two objectives, at first."""
    explore_last: float = Field(default=0.2, ge=0.0, le=1.0)
    """The same after `explore_over` decisions; in between by a cosine."""
    explore_over: int = Field(default=20, ge=1)
    """Decisions until the share of exploration is at its last."""
    width: float = Field(default=0.3, gt=0.0)
    """Distance of mixtures, and of losses as shares of the first ones, at which what was seen
    counts for e^-1/2."""

    def start(self, objectives: Sequence[str]) -> BalanceAtWork:
        """Begin with all alike; see `Balance.start`."""
        return ImprovementAtWork(self, [name for name in objectives if name != OWN_ROLLOUTS])

    def exploring(self, number: int) -> float:
        """Return the share of exploration at a decision, from 0."""
        done = min(number / self.explore_over, 1.0)
        span = self.explore - self.explore_last
        return self.explore_last + span * (1 + math.cos(math.pi * done)) / 2


def improvement(before: float, now: float) -> float:
    """Reward a change of a loss, from -1 to 1; large for all but small changes.

    >>> improvement(2.0, 2.0), improvement(2.0, 1.0), round(improvement(2.0, 1.95), 4)
    (0.0, 1.0, 0.0228)

    Args:
        before: The loss before, above 0.
        now: The loss now.

    Returns:
        -100 e tanh(e sqrt(before now) ((now - before) / before)^3), held within -1 and 1.

    """
    if before <= 0:
        return 0.0
    change = math.sqrt(before * max(now, 0.0)) * ((now - before) / before) ** 3 * math.e
    return min(1.0, max(-1.0, -100 * math.e * math.tanh(change))) + 0.0


class MixtureSeen(NamedTuple):
    """What came of a mixture."""

    losses: tuple[float, ...]
    """Before it, as shares of the first ones."""
    shares: tuple[float, ...]
    """Of each objective."""
    reward: float
    """Sum over the objectives."""


class ImprovementAtWork(BalanceAtWork):
    """The mixture at work, what was measured under it, and what came of those before."""

    def __init__(self, config: ImprovementBalance, names: Sequence[str]) -> None:
        self._config, self._names = config, list(names)
        self._shares = (1.0 / len(names),) * len(names) if names else ()
        self._window: dict[str, list[float]] = {name: [] for name in names}
        self._first: tuple[float, ...] = ()
        self._before: tuple[float, ...] = ()
        self._seen: list[MixtureSeen] = []

    def weights(self) -> Mapping[str, float]:
        """Give n times the shares, and the rollouts what is set."""
        count = len(self._names)
        mixed = zip(self._names, self._shares, strict=True)
        return {OWN_ROLLOUTS: self._config.rollouts, **{name: count * each for name, each in mixed}}

    def observe(self, measured: Mapping[str, float]) -> None:
        """Average losses, and decide once there are enough; see `BalanceAtWork.observe`."""
        for name in self._window.keys() & measured.keys():
            self._window[name].append(measured[name])
        if not self._names or min(map(len, self._window.values())) < self._config.every:
            return
        now = tuple(fmean(self._window[name]) for name in self._names)
        if self._before:
            reward = math.fsum(map(improvement, self._before, now))
            self._seen.append(MixtureSeen(self._as_shares(self._before), self._shares, reward))
            self._shares = self._decided(now, len(self._seen) - 1)
        else:
            self._first = now
        self._before, self._window = now, {name: [] for name in self._names}

    def _as_shares(self, losses: Sequence[float]) -> tuple[float, ...]:
        """Losses as shares of the first ones."""
        return tuple(a / b if b > 0 else 0.0 for a, b in zip(losses, self._first, strict=True))

    def _decided(self, losses: Sequence[float], number: int) -> tuple[float, ...]:
        # Of the run the first losses are known here, and not its seed. To three digits: it is to
        # explore alike on another processor, whose sums are rounded otherwise.
        run = (f"{each:.3g}" for each in self._first)
        chance = Random(stable_seed(0, "mixture", str(number), *run))
        if chance.random() < self._config.exploring(number):
            return explored(len(self._names), chance)
        drawn = [mixture(len(self._names), chance) for _ in range(self._config.candidates)]
        at = self._as_shares(losses)
        order = sorted(range(len(drawn)), key=lambda each: -self._expected(at, drawn[each]))
        chosen = [drawn[each] for each in order[: self._config.best]]
        return tuple(fmean(each) for each in zip(*chosen, strict=True))

    def _expected(self, losses: Sequence[float], shares: Sequence[float]) -> float:
        """The mean reward of what was seen, by nearness; towards 0 where nothing is near."""
        near = [
            math.exp(-(math.dist((*losses, *shares), (*e.losses, *e.shares)) ** 2) / self._spread)
            for e in self._seen
        ]
        paid = math.fsum(n * e.reward for n, e in zip(near, self._seen, strict=True))
        return round(paid / (math.fsum(near) + 1e-3), 9)

    @property
    def _spread(self) -> float:
        return 2 * self._config.width**2

    def state_dict(self) -> dict[str, Any]:
        """The mixture, what is measured, and all that was seen."""
        return {
            "shares": self._shares,
            "window": self._window,
            "first": self._first,
            "before": self._before,
            "seen": [tuple(each) for each in self._seen],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        self._shares, self._first = tuple(state["shares"]), tuple(state["first"])
        self._before = tuple(state["before"])
        self._window = {name: list(values) for name, values in state["window"].items()}
        self._seen = [MixtureSeen(tuple(a), tuple(b), float(c)) for a, b, c in state["seen"]]


def explored(count: int, chance: Random) -> tuple[float, ...]:
    """Draw a mixture of one or two objectives, and a hair of the others.

    Args:
        count: Objectives.
        chance: Draws.

    Returns:
        Shares that add up to 1.

    """
    parts = [_LEFT] * count
    for each in chance.sample(range(count), min(count, chance.randint(1, 2))):
        parts[each] = 1.0
    return _normalized(parts)


def mixture(count: int, chance: Random) -> tuple[float, ...]:
    """Draw a mixture: alike, or by a Pareto law of exponent 1, 2 or 3, which favors few.

    Args:
        count: Objectives.
        chance: Draws.

    Returns:
        Shares that add up to 1.

    """
    exponent = chance.randint(0, 3)
    return _normalized(
        [chance.paretovariate(exponent) if exponent else chance.random() for _ in range(count)]
    )


def _normalized(parts: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(parts) or 1.0
    return tuple(each / total for each in parts)
