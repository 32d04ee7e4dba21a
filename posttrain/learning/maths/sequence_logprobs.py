"""From log-probabilities of tokens to one number for each completion."""

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import masked_mean, masked_sum


def sequence_logprobs(logprobs_BT: Tensor, mask_BT: Tensor, *, per_token: bool = False) -> Tensor:
    """Sum log-probabilities over the valid tokens of each sequence, or take their mean.

    The sum is the log-probability of the completion (DPO, KTO); the mean is that per token (SimPO,
    ORPO, length-normalized IPO).

    Args:
        logprobs_BT: Log-probability of each token, in nats.
        mask_BT: The valid tokens.
        per_token: True for the mean.

    Returns:
        One number per sequence, ``[B]``; 0 of an empty one.

    """
    reduce = masked_mean if per_token else masked_sum
    return reduce(logprobs_BT, mask_BT, -1)


def desensitized_logprobs(
    logprobs_BT: Tensor, mask_BT: Tensor, *, shared_length_B: Tensor, alpha: float
) -> Tensor:
    """Sum log-probabilities, with tokens beyond the length that a pair shares at a lower weight.

    Use it for policy and reference, then ``preference_loss``. Source: LD-DPO, arXiv 2409.06411.

    Args:
        logprobs_BT: Log-probability of each token, in nats.
        mask_BT: The valid tokens.
        shared_length_B: The smaller number of valid tokens of the pair's two completions, the same
            for both.
        alpha: Weight of the tokens beyond it: 1 is the plain sum, 0 cuts the longer one off.

    Returns:
        One number per sequence, ``[B]``.

    """
    rank_BT = mask_BT.bool().cumsum(-1)
    weights_BT = torch.where(rank_BT <= shared_length_B.unsqueeze(-1), 1.0, alpha)
    return masked_sum(logprobs_BT * weights_BT, mask_BT, -1)
