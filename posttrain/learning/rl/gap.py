"""The engine against the trainer: how far their log-probabilities of one token lie apart."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import masked_mean
from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.passes import ModelPasses
from posttrain.learning.rl.rollout import Group, own
from posttrain.stage.errors import UserError


def engine_gap(passes: ModelPasses, groups: Sequence[Group]) -> dict[str, float]:
    """Hold the engine's log-probabilities against those of the policy as it is now.

    Args:
        passes: The policy, at the temperature that was drawn with.
        groups: What the engine drew from it; the first group in which something was drawn is held.
            Of rollouts that older policies began, what the newest drew.

    Returns:
        Distances over its drawn tokens, in nats; 0 where nothing was drawn at all.

    """
    drawn = [[rollout for rollout in group if rollout.num_drawn] for group in own(groups)]
    newest = max((max(r.versions) for group in drawn for r in group), default=0)
    held = ([rollout for rollout in group if newest in rollout.versions] for group in drawn)
    rollouts = next(filter(None, held), [])
    if not rollouts:
        return dict.fromkeys(("logprob_gap", "logprob_gap_max", "logprob_gap_k3"), 0.0)
    samples = [TrainSample.bare(rollout) for rollout in rollouts]
    rows = passes.rows(samples, passes.present_logprobs)
    now = [value for row in rows for value in row]
    then = [value for rollout in rollouts for value in rollout.logprobs]
    by = [each for r in rollouts for each in r.token_versions or (newest,) * r.num_drawn]
    mask_N = torch.tensor(by) == newest
    return {
        name: float(value)
        for name, value in token_gap(torch.tensor(now), torch.tensor(then), mask_N).items()
    }


def token_gap(new: Tensor, sampled: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Compute how far the trainer's log-probabilities are from the engine's.

    Args:
        new: The trainer's, of any shape.
        sampled: The engine's, likewise.
        mask: True at the drawn tokens.

    Returns:
        Mean and largest distance, and the k3 estimate of KL(engine || trainer), in nats.

    """
    difference = torch.where(mask, new - sampled, 0.0)
    # k3 of KL(engine || trainer): never negative, and 0 where they agree.
    divergence = torch.expm1(difference) - difference
    return {
        "logprob_gap": masked_mean(difference.abs(), mask),
        "logprob_gap_max": difference.abs().max(),
        "logprob_gap_k3": masked_mean(divergence, mask),
    }


def refuse_gap(gap: float, *, most: float) -> None:
    """Stop where engine and trainer disagree by more than the recipe allows.

    Args:
        gap: Mean distance of their log-probabilities, in nats per token.
        most: The largest that is allowed.

    Raises:
        UserError: It is larger, or not a number.

    """
    if not gap <= most:
        raise UserError(
            f"rl: the engine's log-probabilities differ from the trainer's by {gap:.4f} nats"
            f" per token, more than max_logprob_gap {most}; the engine"
            " has stale weights or computes something else"
        )
