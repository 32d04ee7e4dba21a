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

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch, TokenCost, needed

if TYPE_CHECKING:
    from torch import Tensor

Baseline = Literal["none", "mean", "leave_one_out"]
RewardScale = Literal[
    "none", "population", "sample", "leave_one_out", "mean", "batch_population", "batch_sample"
]


class GroupRelative(Advantage):
    """Baseline and scale within the rollouts of one problem."""

    baseline: Baseline = "mean"
    """Taken off the reward: nothing, the group's mean, or the mean of the others in the group."""
    scale: RewardScale = "none"
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
        """Compare all with the policy's own: a deviation of 0 divides nothing. ``[B]``."""
        import torch

        own_B = ~foreign_B if include_B is None else ~foreign_B & include_B
        found_B = self._of_rollouts(rewards_B, rollouts, own_B)
        stats = group_statistics(rewards_B[own_B], rollouts.group_B[own_B])
        scale_B = SCALES[self.scale](stats)
        divisor_B = torch.where(scale_B > 0, scale_B + self.epsilon, 1.0)
        groups_B = rollouts.group_B[own_B]
        counted_B = foreign_B if include_B is None else foreign_B & include_B
        for row in counted_B.nonzero()[:, 0].tolist():
            # Any of the group's own tells its statistics; without one there are none.
            peers = (groups_B == rollouts.group_B[row]).nonzero()[:, 0]
            mean, divisor = (0.0, 1.0)
            if len(peers) and self.baseline != "none":
                mean, divisor = float(stats.mean_B[peers[0]]), float(divisor_B[peers[0]])
            found_B[row] = (rewards_B[row] - mean) / divisor
        return found_B


class GroupStatistics(NamedTuple):
    """What a row needs to know of its group and of the batch; each field is ``[B]``, float64."""

    rewards_B: "Tensor"
    size_B: "Tensor"
    mean_B: "Tensor"
    centered_B: "Tensor"
    """Reward less the mean of the group; exactly 0 throughout a group of equal rewards."""
    squares_B: "Tensor"
    """Sum of the squares of ``centered_B`` over the group."""
    others_equal_B: "Tensor"
    """True where all *other* rewards of the group are one and the same number, or there is none."""


def group_statistics(rewards_B: "Tensor", group_B: "Tensor") -> GroupStatistics:
    """Compute size, mean and spread of each row's group, in float64.

    Args:
        rewards_B: One reward per rollout.
        group_B: Integer ids; equal ids are one group. Any numbers, any order, any sizes.

    Returns:
        What a baseline or a scale needs to know, for each row of the batch.

    """
    from posttrain.learning.maths.segments import dense_ids, segment_size, segment_sum

    rewards_B = rewards_B.double()
    index_B, num_groups = dense_ids(group_B)
    size_B = segment_size(index_B, num_groups)[index_B]
    every_P = rewards_B.new_empty(num_groups)
    least_B, greatest_B = (
        every_P.scatter_reduce(0, index_B, rewards_B, reduce=end, include_self=False)[index_B]
        for end in ("amin", "amax")
    )

    # Measured from the least reward of the group: equal rewards then give exact zeros, where a
    # plain mean would leave a rounding error for a small scale to blow up.
    above_B = rewards_B - least_B
    mean_above_B = segment_sum(above_B, index_B, num_groups)[index_B] / size_B
    centered_B = above_B - mean_above_B
    squares_B = segment_sum(centered_B.square(), index_B, num_groups)[index_B]

    def others_at(extreme_B: "Tensor") -> "Tensor":
        here_B = (rewards_B == extreme_B).long()
        return segment_sum(here_B, index_B, num_groups)[index_B] - here_B == size_B - 1

    return GroupStatistics(
        rewards_B=rewards_B,
        size_B=size_B.double(),
        mean_B=least_B + mean_above_B,
        centered_B=centered_B,
        squares_B=squares_B,
        others_equal_B=others_at(least_B) | others_at(greatest_B),
    )


def _leave_one_out_centered(stats: GroupStatistics) -> "Tensor":
    # reward - mean of the others = n / (n - 1) x (reward - mean of all); 0 for a group of one.
    return stats.centered_B * stats.size_B / (stats.size_B - 1).clamp(min=1)


def _leave_one_out_scale(stats: GroupStatistics) -> "Tensor":
    import torch

    # Squares of the others about their own mean = squares - n / (n - 1) x centred^2; n - 1 others.
    n_B = stats.size_B
    squares_B = stats.squares_B - stats.centered_B.square() * n_B / (n_B - 1).clamp(min=1)
    spread_B = (squares_B.clamp(min=0) / (n_B - 2).clamp(min=1)).sqrt()
    return torch.where(stats.others_equal_B, 0.0, spread_B)


def _mean_scale(stats: GroupStatistics) -> "Tensor":
    import torch

    # MaxRL is defined for rewards >= 0; without a success there is nothing to learn from.
    return torch.where(stats.mean_B > 0, stats.mean_B, torch.inf)


def _batch_scale(stats: GroupStatistics, correction: int) -> "Tensor":
    above_B = stats.rewards_B - stats.rewards_B.min()
    squares = (above_B - above_B.mean()).square().sum()
    return (squares / max(len(above_B) - correction, 1)).sqrt().expand_as(above_B)


BASELINES: dict[Baseline, Callable[[GroupStatistics], "Tensor"]] = {
    "none": lambda stats: stats.rewards_B,
    "mean": lambda stats: stats.centered_B,
    "leave_one_out": _leave_one_out_centered,
}
SCALES: dict[RewardScale, Callable[[GroupStatistics], "Tensor"]] = {
    "none": lambda stats: stats.rewards_B.new_zeros(stats.rewards_B.shape),
    "population": lambda stats: (stats.squares_B / stats.size_B).sqrt(),
    "sample": lambda stats: (stats.squares_B / (stats.size_B - 1).clamp(min=1)).sqrt(),
    "leave_one_out": _leave_one_out_scale,
    "mean": _mean_scale,
    "batch_population": lambda stats: _batch_scale(stats, correction=0),
    "batch_sample": lambda stats: _batch_scale(stats, correction=1),
}


def group_relative(
    rewards_B: "Tensor",
    group_B: "Tensor",
    *,
    baseline: Baseline,
    scale: RewardScale,
    epsilon: float,
    include_B: "Tensor | None" = None,
) -> "Tensor":
    """Compare each rollout with its own group: ``(r - baseline) / (scale + epsilon)``.

    The table at the top of this module gives the settings of the published algorithms. Statistics
    are taken in float64. Batch scales need the whole batch: call this before cutting it into
    micro-batches.

    Args:
        rewards_B: One reward per rollout.
        group_B: Integer ids; equal ids are one group. Any numbers, any order, any sizes.
        baseline: What is taken off the reward: nothing, the mean of the group, or the mean of the
            *other* rollouts of the group.
        scale: What it is divided by. ``sample`` divides the squares by n - 1, ``population`` by n,
            ``leave_one_out`` is the sample deviation of the other rollouts, ``mean`` the mean
            reward of the group, ``batch_*`` the deviation of all rewards given.
        epsilon: Added to the scale. Not used with scale ``none``.
        include_B: Rollouts to take into account; the others (unscorable, cut off, or all but the
            successes for a normalization among positives only) get 0 and enter no statistic.

    Returns:
        The advantages ``[B]``, of the dtype of the rewards. With a group baseline, a group of one
        and a group of equal rewards give exactly 0, whatever the scale. A row whose scale is 0 is
        not divided: so NeMo-RL's leave-one-out deviation in a group of two. ``mean`` gives 0 where
        the mean is not positive.

    """
    import torch

    if include_B is not None:
        kept_B = include_B.bool()
        advantages_B = torch.zeros_like(rewards_B)
        advantages_B[kept_B] = group_relative(
            rewards_B[kept_B], group_B[kept_B], baseline=baseline, scale=scale, epsilon=epsilon
        )
        return advantages_B
    if rewards_B.numel() == 0:
        return torch.zeros_like(rewards_B)
    stats = group_statistics(rewards_B, group_B)
    scale_B = SCALES[scale](stats)
    divisor_B = torch.where(scale_B > 0, scale_B + epsilon, 1.0)
    return (BASELINES[baseline](stats) / divisor_B).to(rewards_B.dtype)
