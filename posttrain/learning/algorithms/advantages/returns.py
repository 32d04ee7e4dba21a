"""Advantages as discounted returns, without a baseline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class ReturnAdvantage(Advantage):
    """The discounted sum of the rewards that follow a token, without a baseline.

    `A_t = Σ_{k >= t} gamma^(k - t) r_k`, r the reward on the last drawn token less costs.
    """

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


def turn_rewards(
    rollouts: RolloutBatch, rewards_B: "Tensor", costs: Sequence[TokenCost]
) -> "Tensor":
    """Lay the reward of a rollout on its turns, each less the cost of its tokens.

    Args:
        rollouts: With their turns, and what each of them was paid.
        rewards_B: Reward of each rollout, with what the algorithm adds: that is paid at the end.
        costs: What is taken off the reward of each drawn token.

    Returns:
        Turn rewards `[B, K]`.

    Raises:
        ValueError: There are no turns.

    """
    turn_BT = needed(rollouts.turn_BT, "turn_BT", "credit by turns")
    paid_BK = needed(rollouts.turn_rewards_BK, "turn_rewards_BK", "credit by turns")
    added_B = rewards_B - rollouts.rewards_B
    # A rollout without any drawn token, which no statistic counts, has a turn in name.
    last_B = turn_BT.amax(-1, keepdim=True).clamp(min=0)
    rewards_BK = paid_BK.scatter_add(1, last_B, added_B[:, None])
    for cost in costs:
        # What the tokens themselves are paid is in the rewards of their turns.
        if cost.cost_BT is not rollouts.token_rewards_BT:
            taken_BT = (-cost.coefficient * cost.cost_BT).to(rewards_BK.dtype) * (turn_BT >= 0)
            rewards_BK = rewards_BK.scatter_add(1, turn_BT.clamp(min=0), taken_BT)
    return rewards_BK
