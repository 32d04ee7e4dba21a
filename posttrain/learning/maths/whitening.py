"""Advantages shifted to mean 0 and scaled to deviation 1 over the tokens of a batch."""

from typing import Literal

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import masked_mean, masked_sum

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
