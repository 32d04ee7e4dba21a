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
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor


class GroupRelative(Advantage):
    """What advantages share that compare a rollout with its group: baseline, scale, costs."""

    baseline: Literal["none", "mean", "leave_one_out"] = "mean"
    """Taken off the reward: nothing, the group's mean, or the mean of the others in the group."""
    scale: Literal[
        "none", "population", "sample", "leave_one_out", "mean", "batch_population", "batch_sample"
    ] = "none"
    """What it is divided by: nothing, a deviation of the group or the batch, or the mean."""
    epsilon: float = Field(default=1e-6, ge=0.0)
    """Added to the scale; counts with a `scale` only."""
    offset: float = 0.0
    """Taken off every reward first; without a baseline, 0.5 turns 0 and 1 into bad and good."""

    def without_effect(self) -> frozenset[str]:
        """`epsilon` without a scale."""
        own = frozenset({"epsilon"} if self.scale == "none" else ())
        return own | super().without_effect()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        of_group = self.scale != "none" and not self.scale.startswith("batch_")
        if self.baseline == "none" and of_group:
            raise ValueError(
                f"scale {self.scale} measures the spread of a group, but baseline is none;"
                " set baseline to mean or leave_one_out, or scale to none"
            )
        if self.baseline != "none" and self.offset != 0.0:
            raise ValueError(
                f"offset {self.offset} cancels against baseline {self.baseline};"
                " leave offset out, or set baseline to none"
            )
        return self

    @property
    def compares_rewards(self) -> bool:
        """True but where a reward stands against those of the whole batch."""
        return self.baseline != "none" or self.whiten == "none"

    def refuse_group_size(self, group_size: int) -> str | None:
        """A baseline of the group needs others in it."""
        if self.baseline == "none" or group_size > 1:
            return None
        return (
            f"baseline {self.baseline}: group_size {group_size} makes every advantage 0, as a"
            " rollout is compared with its group; set group_size to at least 2, or baseline to none"
        )

    def _of_rollouts(
        self, rewards_B: "Tensor", rollouts: RolloutBatch, include_B: "Tensor | None"
    ) -> "Tensor":
        """`(reward - baseline) / (scale + epsilon)` of each rollout. ``[B]``."""
        from posttrain.learning.maths.group_relative import group_relative

        return group_relative(
            rewards_B,
            rollouts.group_B,
            baseline=self.baseline,
            scale=self.scale,
            epsilon=self.epsilon,
            include_B=include_B,
        )

    def _less_costs(
        self, rewards_B: "Tensor", rollouts: RolloutBatch, costs: Sequence[TokenCost]
    ) -> "Tensor":
        """Rewards less the offset, and less what the tokens of a rollout cost together. ``[B]``."""
        from posttrain.learning.maths.reduce import masked_sum

        if self.offset:
            rewards_B = rewards_B - self.offset
        for cost in costs:
            mask_BT = needed(rollouts.mask_BT, "mask_BT", "a cost in the reward")
            total_B = masked_sum(cost.cost_BT, mask_BT, -1).to(rewards_B.dtype)
            rewards_B = rewards_B - cost.coefficient * total_B
        return rewards_B

    def _name(self) -> str:
        return f"{self.baseline}/{self.scale}"


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
