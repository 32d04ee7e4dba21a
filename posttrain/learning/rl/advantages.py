"""From rollouts and their rewards to what is learned from: advantages, computed once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import RolloutBatch, multiplied
from posttrain.learning.algorithms.objective import advantages
from posttrain.learning.rl.batch import Row, TrainSample
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.rollout import Group, Rollout


def training_samples(
    groups: Sequence[Group], passes: ModelPasses, *, step: int
) -> list[list[TrainSample | None]]:
    """Turn the groups of a step into what is learned from, before the step's first update.

    What needs a model (a critic's values, a divergence in the reward, log-probabilities of the
    policy as it is now) is computed here once, if the algorithm needs it, and stays as it is
    through all updates. This is the only place where advantages are computed: statistics are of
    these groups and no others.

    Args:
        groups: The groups that are learned from.
        passes: The models, and the config that says what is needed.
        step: 0-based step, which is the version of the present policy.

    Returns:
        A sample for each rollout, group by group. None for a rollout that bears no loss (cut off,
        where the algorithm does not keep those, or not to be judged), so that no denominator
        counts it.

    """
    config, rollouts = passes.config, [rollout for group in groups for rollout in group]
    algorithm, needs = config.algorithm, config.algorithm.needs
    if not rollouts:
        return []
    bare = [TrainSample.bare(rollout) for rollout in rollouts]
    columns: dict[str, list[Row]] = {}
    if passes.critic is not None:
        columns["values"] = passes.rows(bare, passes.present_values)
    if "rewards_reference" in needs:
        columns["reference_logprobs"] = passes.rows(bare, passes.reference_logprobs)
    if "generation_entropy" in needs:
        columns["entropy"] = passes.rows(bare, passes.present_entropy)
    batch = rollout_batch(rollouts, needs=needs, columns=columns)
    earned = advantages(algorithm, batch, max_tokens=config.max_tokens)
    kept: dict[str, Any] = {"advantages": _rows(earned.advantages_BT, rollouts)}
    if earned.returns_BT is not None:
        kept |= {"values": columns["values"], "returns": _rows(earned.returns_BT, rollouts)}
    if "old_logprobs" in needs and _moved_since(rollouts, passes, step=step):
        kept["old_logprobs"] = passes.rows(bare, passes.present_logprobs)
    fixed = [
        each.of_generation(batch, earned.advantages_BT) for each in algorithm.token_weights.values()
    ]
    weights_BT = multiplied([each for each in fixed if each is not None])
    if weights_BT is not None:
        kept["weights"] = _rows(weights_BT.float(), rollouts)
    samples = iter(
        replace(sample, **{name: rows[place] for name, rows in kept.items()}) if bears else None
        for place, (sample, bears) in enumerate(
            zip(bare, earned.bears_loss_B.tolist(), strict=True)
        )
    )
    statistics = "group_statistics" in needs
    return [
        [_of_group(next(samples), group if statistics else ()) for _ in group] for group in groups
    ]


def informative_groups(groups: Sequence[Group], advantage: Advantage) -> list[bool]:
    """Tell which groups have something to teach, by their rewards alone.

    Args:
        groups: Any groups, learned from or not.
        advantage: Knows whose rewards differ from what.

    Returns:
        True or false for each group.

    """
    if not groups:
        return []
    rollouts = [rollout for group in groups for rollout in group]
    found_B = advantage.informative(rollout_batch(rollouts, needs=advantage.needs))
    parts = torch.split(found_B, [len(group) for group in groups])
    return [bool(part.any()) for part in parts]


def rollout_batch(
    rollouts: Sequence[Rollout],
    *,
    needs: Collection[str] = (),
    columns: Mapping[str, Sequence[Row]] | None = None,
) -> RolloutBatch:
    """Lay rewards and drawn tokens out: column t is the t-th drawn token of each rollout.

    A rollout that was cut off ends like any other, with its reward and no value after it: that is
    the task as TRL and verl pose it to their critics too, where running out of tokens is a failure
    of the answer and not an interruption.

    Args:
        rollouts: At least one.
        needs: Names of `part.NEEDS`.
        columns: One number per drawn token: `values`, `reference_logprobs`, `entropy`.

    Returns:
        Left-aligned tensors; None for a column that is not given.

    """
    lengths = [rollout.num_drawn for rollout in rollouts]
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    width = mask_BT.shape[1]

    def padded(rows: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows])

    given = {f"{name}_BT": padded(rows) for name, rows in (columns or {}).items()}
    if given:
        given["sampled_logprobs_BT"] = padded([rollout.logprobs for rollout in rollouts])
    # Where nothing could tell what a rollout is worth, `scored_B` leaves it out.
    rewards = [0.0 if rollout.reward is None else rollout.reward for rollout in rollouts]
    rewards_B = torch.tensor(rewards, dtype=torch.float64)
    if "turns" in needs:
        given |= _turns(rollouts, rewards_B, mask_BT)
    scored = [rollout.judged for rollout in rollouts]
    return RolloutBatch(
        rewards_B=rewards_B,
        group_B=torch.tensor([rollout.group for rollout in rollouts]),
        mask_BT=mask_BT,
        truncated_B=torch.tensor([rollout.truncated for rollout in rollouts]),
        scored_B=None if all(scored) else torch.tensor(scored),
        **given,
    )


def bearing_loss(samples: Sequence[Sequence[TrainSample | None]]) -> list[list[TrainSample]]:
    """The samples that bear loss, group by group, without the groups that have none."""
    groups = [[sample for sample in group if sample is not None] for group in samples]
    return [group for group in groups if group]


def with_advantages(
    groups: Sequence[Group], samples: Sequence[Sequence[TrainSample | None]]
) -> list[Group]:
    """The groups of a generation, each trained rollout with the advantage that was learned from.

    Args:
        groups: All groups, in the order in which they were drawn.
        samples: Those of `training_samples` of the trained ones among them.

    Returns:
        The same groups; a rollout that bears no loss or was not learned from has no advantages.

    """
    found = iter(samples)

    def credited(group: Group) -> Group:
        if not group[0].trained:
            return group
        return [
            rollout._replace(advantages=() if sample is None else sample.advantages)
            for rollout, sample in zip(group, next(found), strict=True)
        ]

    return [credited(group) for group in groups]


def _of_group(sample: TrainSample | None, group: Group | tuple[()]) -> TrainSample | None:
    if sample is None or not group:
        return sample
    rewards = [rollout.reward for rollout in group if rollout.reward is not None]
    return replace(sample, group_mean=fmean(rewards), group_deviation=pstdev(rewards))


def _turns(rollouts: Sequence[Rollout], rewards_B: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
    """The turn of each drawn token, from 0, and each turn's reward: all of it at the last one."""
    turn_BT = torch.full(mask_BT.shape, -1)
    turns = [
        [span.turn for span in rollout.spans if span.drawn for _ in range(span.begin, span.end)]
        for rollout in rollouts
    ]
    turn_BT[mask_BT] = torch.tensor([turn for row in turns for turn in row])
    last_B = turn_BT.amax(-1, keepdim=True)
    rewards_BK = rewards_B.new_zeros(len(rollouts), int(last_B.max()) + 1)
    return {
        "turn_BT": turn_BT,
        "turn_rewards_BK": rewards_BK.scatter(1, last_B, rewards_B[:, None]),
    }


def _rows(values_BT: Tensor, rollouts: Sequence[Rollout]) -> list[Row]:
    """Rows of left-aligned ``[B, T]``, one number per drawn token; of ``[B, 1]`` a single one."""
    if values_BT.shape[1] == 1:
        return [(value,) for value in values_BT[:, 0].tolist()]
    lengths = [rollout.num_drawn for rollout in rollouts]
    return [tuple(row[:n]) for row, n in zip(values_BT.tolist(), lengths, strict=True)]


def _moved_since(rollouts: Sequence[Rollout], passes: ModelPasses, *, step: int) -> bool:
    """True where the policy before the first update is neither the sampler nor the present one."""
    stale = any(rollout.policy_version != step for rollout in rollouts)
    return stale or passes.config.updates_per_step > 1
