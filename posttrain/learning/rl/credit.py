"""Rollouts of a step as what is learned from: credit, weights and marks, before its updates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from torch import Tensor

from posttrain.learning.algorithms.credit_assignment import (
    advantages,
    generation_marks,
    generation_weights,
)
from posttrain.learning.rl.batch import TokenValues, TrainSample
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.failures import errors_of_rl
from posttrain.learning.rl.masked_passes import unmasked_columns
from posttrain.learning.rl.passes import ModelPasses, before_updates
from posttrain.learning.rl.rollout import (
    Group,
    Rollout,
    as_one,
    by_row,
    of_wholes,
    places_of_wholes,
)
from posttrain.learning.rl.rollout_batch import rollout_batch

if TYPE_CHECKING:
    from posttrain.learning.algorithms.batches import RolloutBatch, TokenAdvantages
    from posttrain.learning.algorithms.config import Algorithm


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
    config = passes.config
    algorithm, needs = config.algorithm_at_work, config.algorithm.needs
    rollouts = [rollout for group in groups for rollout in group]
    if not rollouts:
        return []
    bare = _bare(passes, rollouts)
    columns: dict[str, list[TokenValues]] = {}
    if passes.critic is not None:
        columns["values"] = passes.rows(bare, passes.present_values)
    if "rewards_reference" in needs:
        columns["reference_logprobs"] = passes.rows(bare, passes.reference_logprobs)
        columns |= unmasked_columns(passes, bare)
    if "generation_entropy" in needs:
        columns["entropy"] = passes.rows(bare, passes.present_entropy)
    # Credit is of what a role did in an episode, in however many sequences it is learned from.
    places = places_of_wholes(rollouts)
    whole = [as_one([rollouts[at] for at in each]) for each in places]
    joint = {name: of_wholes(rows, places) for name, rows in columns.items()}
    if "turn_values" in needs:
        assert passes.turn_learner is not None
        joint["turn_advantages"] = passes.turn_learner.advantages(whole, config)

    def of_rows(values: Sequence[TokenValues]) -> list[TokenValues]:
        return by_row(values, rollouts, places)

    def columns_of(values_BT: Tensor) -> list[TokenValues]:
        return of_rows(_rows_of(values_BT, whole))

    apart = config.reward.combine.apart(config.reward.components)
    batch = rollout_batch(whole, needs=needs, columns=joint, apart=apart)
    with errors_of_rl():
        earned = advantages(algorithm, batch, max_tokens=config.longest)
    kept = _earned(earned, of=columns_of)
    if earned.returns_BT is not None:
        kept["values"] = columns["values"]
    stale = any(rollout.policy_version != step for rollout in rollouts)
    if stale or config.updates_per_step > 1:
        # Else the policy before the first update is the present one.
        kept |= before_updates(passes, bare, needs)
    kept |= _before_updates(algorithm, batch, earned.advantages_BT, of=columns_of)
    kept |= _looked_at(passes, bare, columns)
    if "group_statistics" in needs:
        for name, column in reward_statistics(whole).items():
            kept[name] = [each[0] for each in of_rows([(value,) for value in column])]
    bears = of_rows([(float(each),) for each in earned.bears_loss_B.tolist()])
    samples = iter(
        replace(sample, **{name: rows[place] for name, rows in kept.items()}) if own[0] else None
        for place, (sample, own) in enumerate(zip(bare, bears, strict=True))
    )
    return [[next(samples) for _ in group] for group in groups]


def _bare(passes: ModelPasses, rollouts: Sequence[Rollout]) -> list[TrainSample]:
    """Rollouts as samples; the policy as it is says what it makes of tokens of others."""
    samples = [TrainSample.bare(rollout) for rollout in rollouts]
    foreign = [sample for sample in samples if sample.foreign]
    found = iter(passes.rows(foreign, passes.present_logprobs) if foreign else ())
    return [
        replace(each, logprobs=next(found), author_logprobs=each.logprobs) if each.foreign else each
        for each in samples
    ]


def _looked_at(
    passes: ModelPasses, bare: Sequence[TrainSample], columns: Mapping[str, list[TokenValues]]
) -> dict[str, Sequence[TokenValues]]:
    """What is kept to be looked at, and never learned from: the policy's entropies."""
    if not passes.config.learner.entropies:
        return {}
    return {"entropies": columns.get("entropy") or passes.rows(bare, passes.present_entropy)}


def _earned(
    earned: "TokenAdvantages", *, of: Callable[[Tensor], list[TokenValues]]
) -> dict[str, Sequence[Any]]:
    """Advantages, targets of a critic, and which tokens bear the loss of which of the two."""
    kept: dict[str, Sequence[Any]] = {"advantages": of(earned.advantages_BT)}
    if earned.returns_BT is not None:
        kept["returns"] = of(earned.returns_BT)
    if earned.bearing is not None:
        for name, mask_BT in zip(("taught", "valued"), earned.bearing, strict=True):
            kept[name] = [tuple(map(bool, row)) for row in of(mask_BT.float())]
    return kept


def _before_updates(
    algorithm: "Algorithm",
    batch: "RolloutBatch",
    advantages_BT: Tensor,
    *,
    of: Callable[[Tensor], list[TokenValues]],
) -> dict[str, Sequence[Any]]:
    """What parts fix for a whole generation: weights of tokens, and which ones they act on."""
    with errors_of_rl():
        weights_BT = generation_weights(algorithm, batch, advantages_BT)
        marks = generation_marks(algorithm, batch, advantages_BT)
    kept: dict[str, Sequence[Any]] = {}
    if weights_BT is not None:
        kept["weights"] = of(weights_BT.float())
    if marks:
        kept["marks"] = [*zip(*(of(marks_BT.float()) for marks_BT in marks), strict=True)]
    return kept


def reward_statistics(rollouts: Sequence[Rollout]) -> dict[str, list[float]]:
    """Mean and deviation of the rewards of those that each rollout is compared with, as columns."""
    rewards: dict[tuple[int, str], list[float]] = {}
    for each in rollouts:
        known = rewards.setdefault((each.group, each.peers), [])
        known += [] if each.reward is None else [each.reward]
    found = [rewards[each.group, each.peers] or [0.0] for each in rollouts]
    return {
        "group_mean": [fmean(each) for each in found],
        "group_deviation": [pstdev(each) for each in found],
    }


def _rows_of(values_BT: Tensor, rollouts: Sequence[Rollout]) -> list[TokenValues]:
    """Cut the padding off left-aligned values; ``[B, 1]`` is one for each rollout."""
    if values_BT.shape[1] == 1:
        return [(value,) for value in values_BT[:, 0].tolist()]
    lengths = [rollout.num_drawn for rollout in rollouts]
    return [tuple(row[:n]) for row, n in zip(values_BT.tolist(), lengths, strict=True)]


def asks_old(config: RlConfig, *, stale: bool) -> bool:
    """Tell whether log-probabilities of the policy before the first update are to be remembered.

    Args:
        config: Of the step.
        stale: True where an older policy drew some of the rollouts.

    Returns:
        False too where it is the present policy in the only update.

    """
    moves = stale or config.updates_per_step > 1
    return moves and "old_logprobs" in config.algorithm.needs


def with_old_logprobs(
    passes: ModelPasses, groups: Sequence[Sequence[TrainSample]], updates: Sequence[Sequence[int]]
) -> list[list[TrainSample]]:
    """Remember the policy before the first update, in the batches of the first pass.

    An inexact precision rounds otherwise in batches of another shape, so that a ratio would not be
    1 where the policy has not moved, and GSPO's narrow range would clip it.

    Args:
        passes: The policy as it is.
        groups: Samples of each group.
        updates: The groups of each update, every group once.

    Returns:
        The groups with `old_logprobs`.

    """
    found = [list(group) for group in groups]
    for places in updates:
        part = [sample for place in places for sample in groups[place]]
        rows = iter(passes.rows(part, passes.present_logprobs))
        for place in places:
            found[place] = [replace(each, old_logprobs=next(rows)) for each in groups[place]]
    return found
