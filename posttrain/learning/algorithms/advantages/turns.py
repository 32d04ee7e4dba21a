"""Advantages of the turns of a rollout, each compared with its like."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.advantages.group import GroupRelative
from posttrain.learning.algorithms.advantages.returns import turn_rewards
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class TurnAdvantage(GroupRelative):
    """Credit by turns: each turn's discounted rewards against those of its like in the group.

    `A_k = (R_k - mean R) / std R` over its like, `R_k = Σ_{j >= k} gamma^(j - k) r_j`; `baseline`
    and `scale` say which mean and deviation.
    """

    SOURCE = "GiGPO, arXiv 2505.10978, for turns from one state; IGPO, arXiv 2510.14967, for all"
    CREDITS: ClassVar[frozenset[str]] = frozenset({"turn"})

    kind: Literal["turns"] = "turns"
    """Compare the turns of the rollouts of one problem with each other."""
    like: Literal["turn", "state", "any"] = "turn"
    """A turn is compared with the same turn of its group, with turns from the same state, or with
    any turn of its group."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount, per turn, of the rewards that follow a turn; 0 pays a turn its own reward only."""
    discounted: Literal["rewards", "advantages"] = "rewards"
    """What is added up over the turns that follow: rewards, and the sums are compared; or the
    advantages that each turn has by its own reward."""
    episode_weight: float = Field(default=0.0, ge=0.0)
    """Weight of the whole rollout's own advantage, added to those of its turns."""

    @property
    def needs(self) -> frozenset[str]:
        """Turns, and the states that they start from where those are compared."""
        return frozenset({"turns", "states"} if self.like == "state" else {"turns"})

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Compare each turn with its like; see `Advantage.estimate`. ``[B, T]``."""
        import torch

        from posttrain.learning.maths.gae import discounted_returns
        from posttrain.learning.maths.group_relative import group_relative
        from posttrain.learning.maths.segments import joint_ids

        turn_BT = needed(rollouts.turn_BT, "turn_BT", "credit by turns")
        rewards_BK = turn_rewards(rollouts, rewards_B, costs)
        rewards_B = self._less_costs(rewards_B, rollouts, costs)
        index_BK = torch.arange(rewards_BK.shape[1], device=rewards_BK.device).expand_as(rewards_BK)
        taken_BK = index_BK <= turn_BT.amax(-1, keepdim=True)
        compared_BK = rewards_BK
        if self.discounted == "rewards":
            compared_BK = discounted_returns(rewards_BK, taken_BK, gamma=self.gamma)
        counted_BK = taken_BK if include_B is None else taken_BK & include_B[:, None]
        like_BK = index_BK
        if self.like == "state":
            like_BK = needed(rollouts.state_BK, "state_BK", "credit by state")
        if self.like == "any":
            like_BK = torch.zeros_like(index_BK)
        group_BK = rollouts.group_B[:, None].expand_as(rewards_BK)
        advantages_N = group_relative(
            compared_BK.flatten(),
            joint_ids(group_BK.flatten(), like_BK.flatten()),
            baseline=self.baseline,
            scale=self.scale,
            epsilon=self.epsilon,
            include_B=counted_BK.flatten(),
        )
        advantages_BK = advantages_N.view_as(rewards_BK)
        if self.discounted == "advantages":
            advantages_BK = discounted_returns(advantages_BK, taken_BK, gamma=self.gamma)
        if self.episode_weight:
            whole_B = self._of_rollouts(rewards_B, rollouts, include_B)
            advantages_BK = advantages_BK + self.episode_weight * whole_B[:, None]
        spread_BT = advantages_BK.gather(1, turn_BT.clamp(min=0))
        return torch.where(turn_BT >= 0, spread_BT, 0.0), None

    def _name(self) -> str:
        return f"{super()._name()} by {self.like}s"
