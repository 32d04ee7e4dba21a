"""What is computed of many tokens a few at a time, so that their logits never stand all at once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

OfChunk = Callable[..., tuple[Any, ...]]
"""``of_chunk(*by, *tensors)``: tensors with an entry for each row of the chunk, or None."""


def in_chunks(
    of_chunk: OfChunk, by: tuple[Any, ...], *tensors: Tensor, size: int
) -> tuple[Any, ...]:
    """Apply a function to the rows of tensors, so many at a time.

    Of several chunks each is computed again in the backward pass.

    Args:
        of_chunk: A function of what it is given alone, in which nothing is random.
        by: What it is given first, the same for all chunks.
        *tensors: Of one length.
        size: Most rows of a chunk.

    Returns:
        What the function gives, of all rows.

    """
    if len(tensors[0]) <= size:
        return of_chunk(*by, *tensors)
    parts = [
        # Nothing in it is random, so no generator needs to be put back when it is computed again.
        checkpoint(of_chunk, *by, *chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in zip(*(torch.split(each, size) for each in tensors), strict=True)
    ]
    return tuple(None if each[0] is None else torch.cat(each) for each in zip(*parts, strict=True))
