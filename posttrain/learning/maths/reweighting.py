"""Weights on advantages: by their sign, and among the successes of a group."""

import torch
from torch import Tensor

from posttrain.learning.maths.segments import dense_ids, segment_max, segment_size, segment_sum


def sign_weighted(advantages: Tensor, *, positive: float, negative: float) -> Tensor:
    """Advantages with separate weights for the good and the bad rollouts. Same shape.

    Negative sample reinforcement (arXiv 2506.01347): positive 0, negative 1; its W-REINFORCE:
    positive 0.1, negative 1; positives alone: positive 1, negative 0.
    """
    return torch.where(advantages > 0, advantages * positive, advantages * negative)


def positive_group_weights(
    scores_B: Tensor, positive_B: Tensor, group_B: Tensor, *, temperature: float
) -> Tensor:
    """Weights of a group's successes among themselves, by a second score (brevity, say). ``[B]``.

    ``w = exp(s / temperature) / mean over the group's successes of exp(s / temperature)``; 0 for
    the others. Multiplied onto the advantages of the successes it ranks them without ever turning
    one of them negative, as a length penalty inside the reward can. Source: DRPO, arXiv 2510.04474
    (the closed-form optimum of the score with a KL penalty).

    The weights of the successes of a group have mean 1; a lone success and equal scores give
    exactly 1.
    """
    positive_B = positive_B.bool()
    if not positive_B.any():
        return torch.zeros_like(scores_B)
    index_B, num_groups = dense_ids(group_B[positive_B])
    kept_B = scores_B[positive_B].double() / temperature
    odds_B = (kept_B - segment_max(kept_B, index_B, num_groups)[index_B]).exp()
    total_B = segment_sum(odds_B, index_B, num_groups)[index_B]
    weights_B = torch.zeros_like(scores_B)
    weights_B[positive_B] = (odds_B * segment_size(index_B, num_groups)[index_B] / total_B).to(
        scores_B.dtype
    )
    return weights_B
