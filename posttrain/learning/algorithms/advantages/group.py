"""Advantages relative to the rollouts of a problem: ``(reward - baseline) / (scale + epsilon)``.

=====================  ===============  ====================  ==================================
name                   baseline         scale                 source
=====================  ===============  ====================  ==================================
GRPO                   mean             sample                arXiv 2402.03300; verl eps 1e-6,
                                                              TRL 1e-4, OpenRLHF 1e-9
GRPO, open-instruct    mean             population            "standard" option, eps 1e-8
GRPO, NeMo-RL          leave_one_out    leave_one_out         its default, eps 1e-6
Dr.GRPO                mean             none                  arXiv 2503.20783
RLOO                   leave_one_out    none                  arXiv 2402.14740
MaxRL                  mean             mean                  arXiv 2602.02710
Lite PPO               mean             batch_sample          arXiv 2508.08221
REINFORCE              none             none                  --
REINFORCE++            none             none, then whiten     arXiv 2501.03262
REINFORCE++ baseline   mean             none, then whiten     arXiv 2501.03262
=====================  ===============  ====================  ==================================
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.advantages.group_relative import GroupRelative
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost

if TYPE_CHECKING:
    from torch import Tensor


class GroupAdvantage(GroupRelative):
    """`(reward - baseline) / (scale + epsilon)` within the rollouts of one problem."""

    SOURCE = "DeepSeekMath, arXiv 2402.03300, section 4.1; the variants: advantages/group.py"
    PER_TOKEN: ClassVar[bool] = False

    kind: Literal["group"] = "group"
    """Compare the rollouts of one problem with each other."""
    among: Literal["all", "positive"] = "all"
    """Whose rewards count: of all rollouts, or of those with a reward above 0, the rest get 0."""
    over: Literal["all", "own"] = "all"
    """Whose rewards make the statistics: of all, or of the policy's own rollouts, where others
    joined the group; these are compared with them."""

    @property
    def rewards_alone(self) -> bool:
        """True without baseline, offset and whitening."""
        return self.baseline == "none" and self.whiten == "none" and not self.offset

    def estimate(
        self,
        rollouts: RolloutBatch,
        *,
        rewards_B: "Tensor",
        costs: Sequence[TokenCost],
        include_B: "Tensor | None",
    ) -> "tuple[Tensor, Tensor | None]":
        """Compare each rollout with its group; see `Advantage.estimate`. ``[B, 1]``."""
        rewards_B = self._less_costs(rewards_B, rollouts, costs)
        if self.among == "positive":
            positive_B = rollouts.rewards_B > 0
            include_B = positive_B if include_B is None else include_B & positive_B
        if self.over == "own" and rollouts.foreign_B is not None:
            return self._over_own(rewards_B, rollouts, rollouts.foreign_B, include_B)[:, None], None
        return self._of_rollouts(rewards_B, rollouts, include_B)[:, None], None

    def _over_own(
        self,
        rewards_B: "Tensor",
        rollouts: RolloutBatch,
        foreign_B: "Tensor",
        include_B: "Tensor | None",
    ) -> "Tensor":
        """Compare all with the policy's own. ``[B]``."""
        from posttrain.learning.maths.group_relative import relative_to_own

        own_B = ~foreign_B
        if include_B is not None:
            own_B, foreign_B = own_B & include_B, foreign_B & include_B
        return relative_to_own(
            rewards_B,
            rollouts.group_B,
            own_B=own_B,
            foreign_B=foreign_B,
            baseline=self.baseline,
            scale=self.scale,
            epsilon=self.epsilon,
        )
