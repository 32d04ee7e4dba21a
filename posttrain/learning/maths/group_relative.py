"""Rewards against those of one's group: ``(reward - baseline) / (scale + epsilon)``.

Which published algorithm has which baseline and scale: ``algorithms/advantages/group.py``. All
statistics are float64, and those of a batch need the whole of it: compare before it is cut into
micro-batches.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posttrain.learning.maths.segments import dense_ids, segment_size, segment_sum

Baseline = Literal["none", "mean", "leave_one_out"]
RewardScale = Literal[
    "none", "population", "sample", "leave_one_out", "mean", "batch_population", "batch_sample"
]


class GroupStatistics(NamedTuple):
    """What a row needs to know of its group and of the batch; each field is ``[B]``, float64."""

    rewards_B: Tensor
    size_B: Tensor
    mean_B: Tensor
    centered_B: Tensor
    """Reward less the mean of the group; exactly 0 throughout a group of equal rewards."""
    squares_B: Tensor
    """Sum of the squares of ``centered_B`` over the group."""
    others_equal_B: Tensor
    """True where all *other* rewards of the group are one and the same number, or there is none."""


def group_statistics(rewards_B: Tensor, group_B: Tensor) -> GroupStatistics:
    """Compute size, mean and spread of each row's group, in float64.

    Args:
        rewards_B: One reward per rollout.
        group_B: Integer ids; equal ids are one group. Any numbers, any order, any sizes.

    Returns:
        What a baseline or a scale needs to know, for each row of the batch.

    """
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

    def others_at(extreme_B: Tensor) -> Tensor:
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


def _leave_one_out_centered(stats: GroupStatistics) -> Tensor:
    # reward - mean of the others = n / (n - 1) x (reward - mean of all); 0 for a group of one.
    return stats.centered_B * stats.size_B / (stats.size_B - 1).clamp(min=1)


def _leave_one_out_scale(stats: GroupStatistics) -> Tensor:
    # Squares of the others about their own mean = squares - n / (n - 1) x centred^2; n - 1 others.
    n_B = stats.size_B
    squares_B = stats.squares_B - stats.centered_B.square() * n_B / (n_B - 1).clamp(min=1)
    spread_B = (squares_B.clamp(min=0) / (n_B - 2).clamp(min=1)).sqrt()
    return torch.where(stats.others_equal_B, 0.0, spread_B)


def _mean_scale(stats: GroupStatistics) -> Tensor:
    # MaxRL is defined for rewards >= 0; without a success there is nothing to learn from.
    return torch.where(stats.mean_B > 0, stats.mean_B, torch.inf)


def _batch_scale(stats: GroupStatistics, correction: int) -> Tensor:
    above_B = stats.rewards_B - stats.rewards_B.min()
    squares = (above_B - above_B.mean()).square().sum()
    return (squares / max(len(above_B) - correction, 1)).sqrt().expand_as(above_B)


BASELINES: dict[Baseline, Callable[[GroupStatistics], Tensor]] = {
    "none": lambda stats: stats.rewards_B,
    "mean": lambda stats: stats.centered_B,
    "leave_one_out": _leave_one_out_centered,
}
SCALES: dict[RewardScale, Callable[[GroupStatistics], Tensor]] = {
    "none": lambda stats: stats.rewards_B.new_zeros(stats.rewards_B.shape),
    "population": lambda stats: (stats.squares_B / stats.size_B).sqrt(),
    "sample": lambda stats: (stats.squares_B / (stats.size_B - 1).clamp(min=1)).sqrt(),
    "leave_one_out": _leave_one_out_scale,
    "mean": _mean_scale,
    "batch_population": lambda stats: _batch_scale(stats, correction=0),
    "batch_sample": lambda stats: _batch_scale(stats, correction=1),
}


def group_relative(
    rewards_B: Tensor,
    group_B: Tensor,
    *,
    baseline: Baseline,
    scale: RewardScale,
    epsilon: float,
    include_B: Tensor | None = None,
) -> Tensor:
    """Compare each rollout with its own group: ``(r - baseline) / (scale + epsilon)``.

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
    divisor_B = _divisor(stats, scale, epsilon)
    return (BASELINES[baseline](stats) / divisor_B).to(rewards_B.dtype)


def relative_to_own(
    rewards_B: Tensor,
    group_B: Tensor,
    *,
    own_B: Tensor,
    foreign_B: Tensor,
    baseline: Baseline,
    scale: RewardScale,
    epsilon: float,
) -> Tensor:
    """Compare all rollouts with the policy's own of their group: others enter no statistic.

    Args:
        rewards_B: One reward per rollout.
        group_B: Integer ids; equal ids are one group.
        own_B: The policy's own rollouts that count; compared as `group_relative` does.
        foreign_B: Those of others that count. The mean of their group's own is taken off; with
            baseline ``none``, or where the group has no own, their reward stands as it is.
        baseline: See `group_relative`.
        scale: See `group_relative`. To a rollout of others all own ones are the other rollouts, so
            that its ``leave_one_out`` is their ``sample``.
        epsilon: See `group_relative`.

    Returns:
        The advantages ``[B]``; 0 of rollouts that do not count.

    """
    found_B = group_relative(
        rewards_B, group_B, baseline=baseline, scale=scale, epsilon=epsilon, include_B=own_B
    )
    if not own_B.any():
        return torch.where(foreign_B, rewards_B, found_B)
    groups_B = group_B[own_B]
    stats = group_statistics(rewards_B[own_B], groups_B)
    divisor_B = _divisor(stats, "sample" if scale == "leave_one_out" else scale, epsilon)
    for row in foreign_B.nonzero()[:, 0].tolist():
        # Any of the group's own tells its statistics; without one there are none.
        peers = (groups_B == group_B[row]).nonzero()[:, 0]
        mean, divisor = (0.0, 1.0)
        if len(peers) and baseline != "none":
            mean, divisor = float(stats.mean_B[peers[0]]), float(divisor_B[peers[0]])
        found_B[row] = (rewards_B[row] - mean) / divisor
    return found_B


def _divisor(stats: GroupStatistics, scale: RewardScale, epsilon: float) -> Tensor:
    """The scale with its epsilon; a scale of 0 divides nothing."""
    scale_B = SCALES[scale](stats)
    return torch.where(scale_B > 0, scale_B + epsilon, 1.0)
