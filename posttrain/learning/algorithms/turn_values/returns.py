"""Values as what followed in stored episodes, without bootstrapping."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.algorithms.turn_values.base import EpisodeTurns, TurnReadings, TurnValues

if TYPE_CHECKING:
    from torch import Tensor


class ReturnValues(TurnValues):
    """Q and V are both drawn to the discounted rewards that followed: Monte Carlo returns.

    Both are of whoever drew the stored episodes. An advantage is the mean of both heads of Q less
    the first head of V.

    `((Q_1 - R)^2 + (Q_2 - R)^2 + (V - R)^2) / 2`, R the discounted rewards from a turn on.
    """

    SOURCE = "MC returns of LMRL-Gym, arXiv 2311.18232"

    kind: Literal["returns"] = "returns"
    """Monte Carlo returns."""

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Half the squared distances to the return; see `TurnValues.loss`."""
        from posttrain.learning.maths.gae import discounted_returns

        del target
        wanted_BK = discounted_returns(turns.rewards_BK, turns.taken_BK, gamma=self.gamma)
        of_said_BK = (read.said_BKH - wanted_BK[..., None]).square().sum(-1)
        return (of_said_BK + (read.begun_BKH[..., 0] - wanted_BK).square()) / 2

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """``Q - V``; see `TurnValues.advantages`."""
        del target, turns
        return read.said_BKH.mean(-1) - read.begun_BKH[..., 0]
