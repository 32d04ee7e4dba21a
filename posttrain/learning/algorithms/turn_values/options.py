"""Values whose step is several turns."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.turn_values.base import (
    BootstrappedValues,
    EpisodeTurns,
    TurnReadings,
)

if TYPE_CHECKING:
    from torch import Tensor


class OptionValues(BootstrappedValues):
    """V of a situation by what an option of several turns brought, and the situation after it.

    An option costs one discount however many turns it has, so an episode is as many times shorter
    to the values. Each head of V is drawn to ``R + gamma V'``, with R what the option's turns were
    paid and V' of the copy after them, by an expectile whose side both heads share. An advantage is
    the lower of these targets less the mean of both heads of V.
    """

    SOURCE = "OTA, arXiv 2505.12737; for the expectile HIQL, arXiv 2307.11949"

    kind: Literal["options"] = "options"
    """Options of several turns."""
    turns: int = Field(default=3, ge=1)
    """Turns of an option; one that an episode ends in is shorter."""
    expectile: float = Field(default=0.7, gt=0.0, lt=1.0)
    """Which expectile of what stored episodes brought."""

    def loss(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """Squares weighed by their side, over both heads; see `TurnValues.loss`."""
        from posttrain.learning.maths.turn_values import expectile_loss

        wanted_BKH = self._targets(target, turns)
        above_BK = wanted_BKH.amin(-1) - target.begun_BKH.mean(-1)
        return expectile_loss(
            wanted_BKH - read.begun_BKH, side=above_BK[..., None], expectile=self.expectile
        ).sum(-1)

    def advantages(self, read: TurnReadings, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        """What the option that a turn begins brought; see `TurnValues.advantages`."""
        return self._targets(target, turns).amin(-1) - read.begun_BKH.mean(-1)

    def _targets(self, target: TurnReadings, turns: EpisodeTurns) -> "Tensor":
        from posttrain.learning.maths.turn_values import option_targets

        return option_targets(
            turns.rewards_BK,
            target.begun_BKH,
            taken_BK=turns.taken_BK,
            turns=self.turns,
            gamma=self.gamma,
        )
