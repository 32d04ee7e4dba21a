"""The names of what RL measures, and the figures of a step's rollouts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Group

CURRICULUM = "rl/curriculum_"
"""Before the names of what a problem sampler measures."""
METRICS: Mapping[str, str] = {
    # Rollouts of the step, all that were drawn for it.
    "rl/reward": "mean reward of those that could be judged",
    "rl/unjudged": "share of rollouts that could not be judged, where there are any",
    "rl/length": "mean length of the completions, in tokens",
    "rl/truncation_rate": "share of completions cut off at max_tokens",
    "rl/entropy": "mean of -log p of the drawn tokens, in nats",
    "rl/yield": "rollouts in groups with signal / all rollouts drawn",
    "rl/all_solved": "share of groups in which every rollout that could be judged is right",
    "rl/none_solved": "share of groups in which none is",
    "rl/rollouts_drawn": "rollouts drawn for the step",
    "rl/tokens_drawn": "tokens drawn for the step",
    "rl/rounds": "rounds of sampling",
    "rl/rollouts_trained": "rollouts that the learner was given",
    "rl/rollouts_masked": "of those, cut off or not to be judged, so that they bear no loss",
    "rl/trained_share": "rollouts that the learner was given / all rollouts drawn",
    "rl/staleness": "steps by which the trained rollouts' policy is behind, mean",
    "rl/rollouts_stale": "rollouts dropped as older than the bound",
    # The engine against the trainer, before the first update.
    "rl/logprob_gap": "mean distance of the engine's log-probabilities, in nats",
    "rl/logprob_gap_max": "largest such distance at a token",
    "rl/logprob_gap_k3": "KL(engine || trainer) by k3, in nats per token",
    "rl/drift": "logprob_gap of stale rollouts: the policy has moved since",
    "rl/drift_max": "largest such distance",
    "rl/drift_k3": "KL(engine || trainer) of stale rollouts by k3",
    # The updates of the step, as means over them.
    "rl/loss": "loss, all terms",
    "rl/clip_fraction": "share of tokens that a clip caught",
    "rl/approx_kl": "KL(old || policy) by k1, in nats per token",
    "rl/approx_kl_k3": "the same by k3",
    "rl/ratio_mean": "mean ratio of policy to old",
    "rl/weight_mean": "mean importance weight",
    "rl/weight_zero_fraction": "share of tokens whose weight is 0",
    "rl/value_loss": "loss of the critic",
    "rl/value_mean": "mean value",
    "rl/value_squared_error": "mean squared error of the values",
    "rl/value_clip_fraction": "share of values that the clip held",
    "rl/value_grad_norm": "norm of the critic's gradient before clipping",
    "rl/grad_norm": "norm of the gradient before clipping",
    "rl/learning_rate": "learning rate",
}
"""Metrics of a step by name, as they stand in the curve and in the tracker.

Those of the problem sampler come after `CURRICULUM`, by the names in its part's `METRICS`, and
those of the regularizers after "rl/", likewise.
The tracker has two more, `rl/seconds_sampling` and `rl/seconds_learning`, which no artifact holds.
Of the stage as a whole: `rl/num_rollouts`, `rl/num_updates`, `rl/steps`, `rl/stopped_early`, and
the means over the last steps of reward, length, truncation_rate, entropy and yield.
"""


def describe(groups: Sequence["Group"], *, informative: Sequence[bool]) -> dict[str, float]:
    """Describe a step's rollouts, over all of them, trained on or not.

    Args:
        groups: Rollouts of each problem.
        informative: For each group, True where its rewards differ.

    Returns:
        Means by name. `yield` is the share of rollouts in groups with signal, the only ones that
        teach. `entropy` is the mean of -log p over the drawn tokens in nats, an unbiased estimate
        of the policy's. Lengths are in tokens.

    """
    rollouts = [rollout for group in groups for rollout in group]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    solved = [[r.solved for r in group if r.solved is not None] for group in groups]
    judged = [group for group in solved if group]
    num_tokens = sum(rollout.num_drawn for rollout in rollouts)
    trained = sum(rollout.trained for rollout in rollouts)
    unjudged = len(rollouts) - len(rewards)
    num_informative = sum(len(g) for g, has in zip(groups, informative, strict=True) if has)
    return {
        **({"reward": sum(rewards) / len(rewards)} if rewards else {}),
        "length": num_tokens / len(rollouts),
        "truncation_rate": sum(rollout.truncated for rollout in rollouts) / len(rollouts),
        "entropy": -sum(sum(rollout.logprobs) for rollout in rollouts) / num_tokens,
        "yield": num_informative / len(rollouts),
        **(_solved(judged) if judged else {}),
        "rollouts_drawn": float(len(rollouts)),
        "tokens_drawn": float(num_tokens),
        "rollouts_trained": float(trained),
        "trained_share": trained / len(rollouts),
        **({"unjudged": unjudged / len(rollouts)} if unjudged else {}),
    }


def _solved(groups: Sequence[Sequence[bool]]) -> dict[str, float]:
    return {
        "all_solved": sum(map(all, groups)) / len(groups),
        "none_solved": sum(not any(group) for group in groups) / len(groups),
    }
