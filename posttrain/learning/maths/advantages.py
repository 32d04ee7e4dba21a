"""Advantages of rollouts relative to their own group: ``(reward - baseline) / (scale + epsilon)``.

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

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import masked_mean, masked_sum
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
    "none": lambda stats: torch.zeros_like(stats.rewards_B),
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


def overlong_penalty(length_B: Tensor, *, limit: int, buffer: int, bounded: bool = True) -> Tensor:
    """Penalize length: 0 up to ``limit - buffer``, then down by ``1 / buffer`` a token.

    Take the reward *without* it to tell whether a group has any variance, as NeMo-RL does: else
    lengths alone make a solved problem look unsolved.

    Args:
        length_B: Tokens of each completion.
        limit: Tokens at which the penalty is -1.
        buffer: Tokens before the limit over which it grows. 0 gives 0 up to the limit, then -1
            (-infinity if not bounded).
        bounded: Beyond the limit, True stays at -1 (DAPO's paper, arXiv 2503.14476; TRL, OpenRLHF);
            False goes on (verl, AReaL, NeMo-RL). A completion cannot pass the limit unless the
            limit is below that of generation.

    Returns:
        What to add to the rewards, ``[B]``.

    """
    excess_B = (length_B - (limit - buffer)).clamp(min=0).float()
    penalty_B = torch.where(excess_B > 0, -excess_B / buffer, 0.0)
    return penalty_B.clamp(min=-1.0) if bounded else penalty_B


Spread = Literal["sample", "population"]


def whiten(values_BT: Tensor, mask_BT: Tensor, *, spread: Spread, epsilon: float = 1e-8) -> Tensor:
    """Compute ``(x - mean) / sqrt(variance + epsilon)`` over the valid tokens of a batch.

    It is the last step of GAE, of REINFORCE++ and of its baseline variant (arXiv 2501.03262), where
    a rollout of many tokens counts many times. Needs the whole batch: call it before cutting the
    batch into micro-batches.

    Args:
        values_BT: What to whiten, mostly advantages.
        mask_BT: The valid tokens.
        spread: ``sample`` divides the squares by n - 1 (verl, TRL, NeMo-RL's GAE), ``population``
            by n (OpenRLHF, NeMo-RL's REINFORCE++).
        epsilon: Added to the variance.

    Returns:
        Values ``[B, T]``; 0 at masked tokens. Equal values, a single token and an empty mask give
        exactly 0.

    """
    mask_BT = mask_BT.bool()
    least = torch.where(mask_BT, values_BT, torch.inf).amin()
    above_BT = torch.where(mask_BT, values_BT - least, 0.0)
    centered_BT = torch.where(mask_BT, above_BT - masked_mean(above_BT, mask_BT), 0.0)
    num_free = mask_BT.sum() - (1 if spread == "sample" else 0)
    variance = masked_sum(centered_BT.square(), mask_BT) / num_free.clamp(min=1)
    return (centered_BT * (variance + epsilon).rsqrt()).to(values_BT.dtype)
