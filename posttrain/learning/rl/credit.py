"""The advantages of a step's rollouts, before they are drawn on and once they are learnt from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.credit import Outcomes, advantages
from posttrain.learning.rl.rollout import Group, Rollout


def outcomes(
    rollouts: Sequence[Rollout],
    *,
    reference: Sequence[Sequence[float]] | None = None,
    values: Sequence[Sequence[float]] | None = None,
) -> Outcomes:
    """Rewards and drawn tokens, left-aligned: column t is the t-th drawn token of each rollout.

    A rollout that was cut off ends like any other, with its reward and no value after it: that is
    the task as TRL and verl pose it to their critics too, where running out of tokens is a failure
    of the answer and not an interruption.
    """
    lengths = [rollout.num_drawn for rollout in rollouts]
    mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]

    def padded(rows: Sequence[Sequence[float]]) -> Tensor:
        width = mask_BT.shape[1]
        return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows])

    # Only a divergence in the reward asks what the sampler thought of each token.
    sampled = None if reference is None else padded([rollout.logprobs for rollout in rollouts])
    scored = [rollout.judged for rollout in rollouts]
    return Outcomes(
        rewards_B=torch.tensor(
            [rollout.reward or 0.0 for rollout in rollouts], dtype=torch.float64
        ),
        group_B=torch.tensor([rollout.group for rollout in rollouts]),
        mask_BT=mask_BT,
        truncated_B=torch.tensor([rollout.truncated for rollout in rollouts]),
        scored_B=None if all(scored) else torch.tensor(scored),
        sampled_logprobs_BT=sampled,
        reference_logprobs_BT=None if reference is None else padded(reference),
        values_BT=None if values is None else padded(values),
    )


def relative(groups: Sequence[Group], algorithm: Algorithm, *, max_tokens: int) -> list[Group]:
    """The same groups with the advantage that each rollout has by its reward alone.

    What only the learner knows (a critic's values, a divergence in the reward, the spread over the
    batch that is learnt from) is left out here: this says which groups have something to teach.
    Without a group baseline that is every group, so the rewards themselves stand for it.
    """
    rollouts = [rollout for group in groups for rollout in group]
    if algorithm.advantage.kind != "group":
        return [[r._replace(advantages=(r.reward or 0.0,)) for r in group] for group in groups]
    bare = algorithm.model_copy(
        update={
            "kl": None,
            "advantage": algorithm.advantage.model_copy(update={"whiten": "none"}),
        }
    )
    credit = advantages(bare, outcomes(rollouts), max_tokens=max_tokens)
    found = iter(credit.advantages_BT[:, 0].tolist())
    return [[r._replace(advantages=(next(found),)) for r in group] for group in groups]


def token_rows(values_BT: Tensor, rollouts: Sequence[Rollout]) -> list[list[float]]:
    """One value per drawn token of each rollout, of left-aligned ``[B, T]`` or ``[B, 1]``."""
    lengths = [rollout.num_drawn for rollout in rollouts]
    if values_BT.shape[1] == 1:
        return [[v] * n for v, n in zip(values_BT[:, 0].tolist(), lengths, strict=True)]
    return [row[:n] for row, n in zip(values_BT.tolist(), lengths, strict=True)]
