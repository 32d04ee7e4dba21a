"""Values of utterances by one step of bootstrapping, off policy."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.turn_values.base import (
    BootstrappedValues,
    EpisodeTurns,
    TurnReadings,
)

if TYPE_CHECKING:
    from torch import Tensor


class TdValues(BootstrappedValues):
    """A turn is worth its reward and the next situation; a situation, what the policy says in it.

    Q of a stored turn is drawn to ``r + gamma V'``, V of a situation of the present policy to the
    ``Q'`` of what that says there; Q' and V' are of the copy. Each of the two heads has the target
    of its like, and an advantage is the lower Q less the lower V.
    """

    SOURCE = "ArCHer, arXiv 2402.19446, section 3.2 and algorithm 1"
    FRESH: ClassVar[bool] = True

    kind: Literal["td"] = "td"
    """One step of bootstrapping, by two critics."""

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Square the distances to the targets, over both heads; see `TurnValues.loss`."""
        import torch

        from posttrain.learning.maths.turn_values import td_targets

        wanted_BKH = td_targets(
            turns.rewards_BK, target.begun_BKH, taken_BK=turns.taken_BK, gamma=self.gamma
        )
        of_said_BK = (read.said_BKH - wanted_BKH).square().sum(-1)
        of_begun_BK = (read.begun_BKH - target.said_BKH).square().sum(-1)
        return torch.where(turns.fresh_B[:, None], of_begun_BK, of_said_BK)

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """``min Q - min V``; see `TurnValues.advantages`."""
        del target, turns
        return read.said_BKH.amin(-1) - read.begun_BKH.amin(-1)
