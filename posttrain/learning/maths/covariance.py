"""How two numbers of each token vary together, token by token."""

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import masked_mean


def joint_deviations(a_BT: Tensor, b_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Multiply what two numbers of a token deviate from their means over all tokens.

    The mean of the products is the covariance, so that each says what its token adds to it. Of
    advantages and log-probabilities that is what the policy gradient takes off the entropy, in
    proportion to the learning rate (arXiv 2505.22617, abstract).

    Args:
        a_BT: A number of each token, or ``[B, 1]`` where a row's tokens share one.
        b_BT: Another.
        mask_BT: The tokens that count.

    Returns:
        Products ``[B, T]``; -infinity where masked, so that neither a band nor a ranking takes it.

    """
    mask_BT = mask_BT.bool()
    off_a_BT, off_b_BT = (
        each_BT - masked_mean(each_BT.expand(mask_BT.shape), mask_BT) for each_BT in (a_BT, b_BT)
    )
    return torch.where(mask_BT, off_a_BT * off_b_BT, -torch.inf)
