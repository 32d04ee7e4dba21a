"""Advantages from the values of a critic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.advantages.returns import token_rewards
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class GaeAdvantage(Advantage):
    """Generalized advantage estimation from the values of a critic."""

    SOURCE = "arXiv 1506.02438, equation 16"
    NEEDS = frozenset({"values"})
    CREDITS: ClassVar[frozenset[str]] = frozenset({"turn", "token"})

    kind: Literal["gae"] = "gae"
    """Compare each token with what the critic expected."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Decay of the trace: 1 trusts the rewards alone, 0 the critic alone."""

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Sum the discounted surprises of the critic; see `Advantage.estimate`. ``[B, T]``."""
        from posttrain.learning.maths.gae import generalized_advantages

        mask_BT = needed(rollouts.mask_BT, "mask_BT", "credit by tokens")
        rewards_BT = token_rewards(rewards_B, mask_BT, costs)
        values_BT = needed(rollouts.values_BT, "values_BT", "advantage gae")
        return generalized_advantages(
            rewards_BT,
            values_BT.to(rewards_BT.dtype),
            mask_BT=mask_BT,
            gamma=self.gamma,
            lam=self.lam,
        )

    def _name(self) -> str:
        return f"gae {self.gamma:g} {self.lam:g}"
