"""A hint as long as makes a problem solved half of the time, by a model of how it responds.

p(h) = c + (1 - c) / (1 + exp(-a (h - b))) is the chance to be right behind a share h of the
solution: the three-parameter logistic of item response. a says how steep it is, b where its middle
lies, c how often the problem is solved by guessing.
"""

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from posttrain.learning.rl.hints.base import HintLaw, TriedShare

if TYPE_CHECKING:
    from torch import Tensor

_SLOPES = (2.0, 4.0, 8.0, 16.0, 32.0)
_GUESSES = (0.0, 0.05, 0.1, 0.2, 0.3)
_MIDDLES = tuple(step / 20 for step in range(-10, 31))


class ItemResponse(HintLaw):
    """Fit how often a problem is solved behind which share, and give what a target asks for.

    A group is drawn in rounds; each fits a three-parameter logistic to what the rounds before it
    showed, and to what is recalled of the problem, and solves for the share of the next one.

    `p(h) = c + (1 - c) / (1 + exp(-a (h - b)))`, and h such that `p(h) = target`, at most `most`.
    """

    SOURCE = "SEELE, arXiv 2509.06923: multi-round sampling with a three-parameter logistic"
    LOOKS = True

    kind: Literal["item_response"] = "item_response"
    target: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Chance to be right that is aimed at."""
    rounds: int = Field(default=4, ge=1)
    """Rounds in which a group is drawn, each of as many rollouts, or one less."""
    first: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the first round where nothing is known of the problem."""
    most: float = Field(default=0.95, gt=0.0, le=1.0)
    """The largest share that is given."""
    memory: int = Field(default=0, ge=0)
    """Rounds of earlier steps that are recalled of a problem."""

    @property
    def recalled(self) -> int:
        """See `HintLaw.recalled`."""
        return self.memory

    def portions(self, group_size: int) -> Sequence[int]:
        """Part the group among the rounds; see `HintLaw.portions`."""
        rounds = min(self.rounds, group_size)
        least, more = divmod(group_size, rounds)
        return tuple(least + (number < more) for number in range(rounds))

    def share(
        self,
        tried: Sequence[TriedShare],
        recalled: Sequence[TriedShare],
        draw: Random,  # noqa: ARG002 - it is fitted
    ) -> float:
        """Fit, and solve for the target; see `HintLaw.share`."""
        known = [
            (each.share, right)
            for each in (*recalled, *tried)
            for right in each.solved
            if right is not None
        ]
        if not known:
            return self.first
        shares, solved = zip(*known, strict=True)
        return fit_response(shares, solved).share_for(self.target, most=self.most)


class ResponseCurve(NamedTuple):
    """Chance to solve a problem, by the share of its solution that is given."""

    slope: float
    middle: float
    guess: float

    def chance(self, share: float) -> float:
        """Return p(h) of a share of the solution.

        >>> ResponseCurve(slope=8.0, middle=0.5, guess=0.0).chance(0.5)
        0.5
        """
        return self.guess + (1 - self.guess) / (1 + math.exp(-self.slope * (share - self.middle)))

    def share_for(self, chance: float, *, most: float = 1.0) -> float:
        """Find the share at which the problem is solved with a given chance.

        Args:
            chance: Between 0 and 1.
            most: The largest share that may be given.

        Returns:
            A share from 0 to `most`; 0 where guessing alone does as well.

        """
        if chance <= self.guess:
            return 0.0
        odds = (chance - self.guess) / (1 - chance)
        return min(most, max(0.0, self.middle + math.log(odds) / self.slope))


def fit_response(shares: Sequence[float], solved: Sequence[bool]) -> ResponseCurve:
    """Find the likeliest response after some attempts, among those of a grid.

    Beforehand the middle is taken to be near 0.5 (a normal of deviation 0.5), the slope near 8 (a
    factor of 2 is a deviation), and the guess near 0 (an exponential of mean 0.1): few attempts say
    little, and without any the middle is 0.5.

    Args:
        shares: Of the solution, of each attempt.
        solved: Whether it was right.

    Returns:
        The three parameters.

    """
    import torch

    slope_N, middle_N, guess_N, prior_N = _grid()
    total_N = prior_N.clone()
    # Attempts behind one hint count together.
    counts: dict[tuple[float, bool], int] = {}
    for attempt in zip(shares, solved, strict=True):
        counts[attempt] = counts.get(attempt, 0) + 1
    for (share, right), count in counts.items():
        logistic_N = torch.sigmoid(slope_N * (share - middle_N))
        chance_N = guess_N + (1 - guess_N) * logistic_N
        seen_N = chance_N if right else 1 - chance_N
        total_N += count * seen_N.clamp(min=1e-12).log()
    best = int(total_N.argmax())
    return ResponseCurve(float(slope_N[best]), float(middle_N[best]), float(guess_N[best]))


@cache
def _grid() -> "tuple[Tensor, Tensor, Tensor, Tensor]":
    """All parameters that are tried, ``[N]`` each, and the logarithm of what they are taken for."""
    import torch

    axes = [torch.tensor(each, dtype=torch.float64) for each in (_SLOPES, _MIDDLES, _GUESSES)]
    slope_N, middle_N, guess_N = (each.reshape(-1) for each in torch.meshgrid(*axes, indexing="ij"))
    steep_N = (slope_N / 8).log2()
    prior_N = -0.5 * steep_N**2 - 0.5 * ((middle_N - 0.5) / 0.5) ** 2 - guess_N / 0.1
    return slope_N, middle_N, guess_N, prior_N
