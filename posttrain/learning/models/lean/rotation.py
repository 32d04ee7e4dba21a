"""Rotary positions as one complex product."""

from typing import Any

import torch
from torch import Tensor


def turns(rotary: Any, length: int) -> Tensor:
    """``scale * exp(i * position * frequency)`` of positions below `length`: ``[T, D/2]``."""
    positions_T = torch.arange(length, device=rotary.inv_freq.device)
    angles = positions_T[:, None].float() * rotary.inv_freq
    return torch.polar(torch.full_like(angles, rotary.attention_scaling), angles)


def adjoined(heads_FC: Tensor, size: int) -> Tensor:
    """Order the rows of a projection to whole heads so that those that turn together adjoin.

    Llama pairs dimension i of a head with i + D/2. With a pair adjacent, the rotation is one
    complex product, and q.k does not change when both are permuted alike.

    Args:
        heads_FC: Weights of a query or key projection; F is heads times head size.
        size: Head size D.

    Returns:
        The same rows in the new order.

    """
    halves = heads_FC.view(len(heads_FC) // size, 2, size // 2, -1)
    return halves.transpose(1, 2).reshape_as(heads_FC)
