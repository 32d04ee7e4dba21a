"""Close the gaps that finished prompts leave in a batch, moving as few of the others as can be."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def fill_the_gaps(open_P: npt.NDArray[np.bool_], num_open: int) -> npt.NDArray[np.int64]:
    """The open prompts in an order in which the first of them stay where they are, `[num_open]`."""
    kept_P = np.arange(num_open)
    kept_P[~open_P[:num_open]] = open_P[num_open:].nonzero()[0] + num_open
    return kept_P


def move_to_front(cache: Tensor, chosen: Tensor) -> Tensor:
    """Let `cache[i]` become what `cache[chosen[i]]` was, moving only what must; the front."""
    moved = (chosen != torch.arange(len(chosen), device=chosen.device)).nonzero()[:, 0]
    cache[moved] = cache[chosen[moved]]
    return cache[: len(chosen)]
