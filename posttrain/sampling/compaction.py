"""Close the gaps that finished prompts leave in a batch, moving as few of the others as can be."""

import torch
from torch import Tensor


def fill_the_gaps(open_P: Tensor, num_open: int) -> Tensor:
    """The open prompts in an order in which the first of them stay where they are, `[num_open]`."""
    kept_P = torch.arange(num_open, device=open_P.device)
    gaps = ~open_P[:num_open]
    kept_P[gaps] = open_P[num_open:].nonzero()[:, 0] + num_open
    return kept_P


def move_to_front(cache: Tensor, chosen: Tensor) -> Tensor:
    """Let `cache[i]` become what `cache[chosen[i]]` was, moving only what must; the front."""
    moved = (chosen != torch.arange(len(chosen), device=chosen.device)).nonzero()[:, 0]
    cache[moved] = cache[chosen[moved]]
    return cache[: len(chosen)]
