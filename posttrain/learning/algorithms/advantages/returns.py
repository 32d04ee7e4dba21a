"""Advantages as discounted returns, without a baseline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class ReturnAdvantage(Advantage):
    """The discounted sum of the rewards that follow a token, without a baseline."""

    SOURCE = "REINFORCE++, arXiv 2501.03262"
    CREDITS: ClassVar[frozenset[str]] = frozenset({"turn", "token"})

    kind: Literal["returns"] = "returns"
    """Credit each token with what follows it."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Sum what follows each token; see `Advantage.estimate`. ``[B, T]``."""
        from posttrain.learning.maths.gae import discounted_returns

        mask_BT = needed(rollouts.mask_BT, "mask_BT", "credit by tokens")
        rewards_BT = token_rewards(rewards_B, mask_BT, costs)
        return discounted_returns(rewards_BT, mask_BT, gamma=self.gamma), None

    def _name(self) -> str:
        return f"returns {self.gamma:g}"


def token_rewards(rewards_B: "Tensor", mask_BT: "Tensor", costs: Sequence[TokenCost]) -> "Tensor":
    """Lay the reward of a rollout on its last drawn token, less the cost of each token.

    Args:
        rewards_B: Reward of each rollout.
        mask_BT: The drawn tokens.
        costs: What is taken off the reward of each drawn token.

    Returns:
        Token rewards `[B, T]`.

    """
    import torch

    from posttrain.learning.maths.kl import kl_in_reward

    mask_BT = mask_BT.bool()
    position_T = torch.arange(mask_BT.shape[1], device=mask_BT.device)
    last_B = torch.where(mask_BT, position_T, -1).amax(-1)
    rewards_BT = torch.where(position_T == last_B[:, None], rewards_B[:, None], 0.0)
    for cost in costs:
        cost_BT = cost.cost_BT.to(rewards_BT.dtype)
        rewards_BT = kl_in_reward(
            rewards_BT, cost_BT, mask_BT=mask_BT, coefficient=cost.coefficient
        )
    return rewards_BT
