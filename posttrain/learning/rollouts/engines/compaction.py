"""Close the gaps that finished prompts leave in a batch, moving as few of the others as can be."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def fill_the_gaps(open_P: npt.NDArray[np.bool_], num_open: int) -> npt.NDArray[np.int64]:
    """Order the open prompts so that those already in front stay where they are.

    Args:
        open_P: True where a prompt is not finished.
        num_open: Number of those.

    Returns:
        Index of the prompt for each place in front, ``[num_open]``.

    """
    kept_P = np.arange(num_open)
    kept_P[~open_P[:num_open]] = open_P[num_open:].nonzero()[0] + num_open
    return kept_P


def move_to_front(cache: Tensor, chosen: Tensor) -> Tensor:
    """Let `cache[i]` become what `cache[chosen[i]]` was, moving only what must.

    Args:
        cache: Changed in place, along its first dimension.
        chosen: Index for each place in front.

    Returns:
        A view of the front, as long as `chosen`.

    """
    moved = (chosen != torch.arange(len(chosen), device=chosen.device)).nonzero()[:, 0]
    cache[moved] = cache[chosen[moved]]
    return cache[: len(chosen)]
