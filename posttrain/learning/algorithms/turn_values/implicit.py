"""Values by one step of bootstrapping on what stored episodes did, and on nothing else."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.turn_values.base import (
    BootstrappedValues,
    EpisodeTurns,
    TurnReadings,
)

if TYPE_CHECKING:
    from torch import Tensor


class ImplicitValues(BootstrappedValues):
    """V is a high expectile of Q over what was said in a situation, so nothing unsaid is valued.

    Both heads of Q are drawn to ``r + gamma V``, V of the next situation by the critic itself; the
    first head of V to that expectile of the lower Q' of the copy. An advantage is that Q' less V.
    """

    SOURCE = "IQL, arXiv 2110.06169, equations 5 and 6; for language ILQL, arXiv 2206.11871"

    kind: Literal["implicit"] = "implicit"
    """Implicit Q-learning."""
    expectile: float = Field(default=0.7, gt=0.0, lt=1.0)
    """Which expectile; 0.5 is the mean of what stored episodes did, near 1 their best."""

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Half the squares, those of V weighed by their side; see `TurnValues.loss`."""
        from posttrain.learning.maths.turn_values import expectile_loss, td_targets

        begun_BK1 = read.begun_BKH[..., :1]
        wanted_BK1 = td_targets(
            turns.rewards_BK, begun_BK1.detach(), taken_BK=turns.taken_BK, gamma=self.gamma
        )
        of_said_BK = (read.said_BKH - wanted_BK1).square().sum(-1) / 2
        above_BK = target.said_BKH.amin(-1) - begun_BK1[..., 0]
        return of_said_BK + expectile_loss(above_BK, expectile=self.expectile) / 2

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """``min Q' - V``; see `TurnValues.advantages`."""
        del turns
        return target.said_BKH.amin(-1) - read.begun_BKH[..., 0]
