"""Advantages from values that are learned from stored episodes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed
from posttrain.learning.algorithms.turn_values.base import TurnValues
from posttrain.learning.algorithms.turn_values.registry import TURN_VALUES
from posttrain.learning.algorithms.turn_values.td import TdValues
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from torch import Tensor


class LearnedAdvantage(Advantage):
    """How much better each turn was than its situation, by values learned from stored episodes.

    The values say an advantage for each turn, which all of its tokens share. As it is it is that of
    a policy gradient; as a weight it is that of a regression, which is right for what another
    policy said as well.
    """

    SOURCE = "ArCHer, arXiv 2402.19446; weights: AWR, arXiv 1910.00177"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"turn_values"})
    CREDITS: ClassVar[frozenset[str]] = frozenset({"turn", "token"})

    kind: Literal["learned"] = "learned"
    """Ask values that are learned off policy."""
    values: Annotated[TurnValues, InSlot(TURN_VALUES)] = TdValues()
    """How these are learned, and from what: `td`, or a mapping with a kind and its settings."""
    weigh: Literal["signed", "exponential", "positive"] = "signed"
    """The advantage itself; `exp(A / beta)`, at most `most`; or 1 where it is above 0, else 0."""
    beta: float = Field(default=1.0, gt=0.0)
    """What an advantage is divided by; counts with `exponential` only."""
    most: float = Field(default=20.0, gt=0.0)
    """The largest weight; counts with `exponential` only."""

    def without_effect(self) -> frozenset[str]:
        """`beta` and `most` without exponential weights."""
        idle = frozenset({"beta", "most"} if self.weigh != "exponential" else ())
        return super().without_effect() | idle

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",  # noqa: ARG002 - the values were learned from the rewards themselves
        costs: Sequence[TokenCost],  # noqa: ARG002 - nor is there any, but of what turns are paid
        include_B: "Tensor | None",  # noqa: ARG002
    ) -> "tuple[Tensor, Tensor | None]":
        """Take the values' word; see `Advantage.estimate`. ``[B, T]``."""
        import torch

        found_BT = needed(rollouts.turn_advantages_BT, "turn_advantages_BT", "advantage learned")
        drawn_BT = needed(rollouts.mask_BT, "mask_BT", "advantage learned").bool()
        if self.weigh == "exponential":
            found_BT = (found_BT / self.beta).exp().clamp(max=self.most)
        elif self.weigh == "positive":
            found_BT = (found_BT > 0).to(found_BT.dtype)
        return torch.where(drawn_BT, found_BT, 0.0), None

    def _name(self) -> str:
        by = "" if self.weigh == "signed" else f" {self.weigh}"
        return f"learned {self.values.describe()}{by}"
