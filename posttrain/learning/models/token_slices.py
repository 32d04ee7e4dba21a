"""What is made of the whole distribution at each wanted token, a slice of tokens at a time.

The logits of a slice exist while it is worked on, and again in its backward pass; never those of
all tokens at once. `logprobs` has the plain log-probabilities.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from posttrain.learning.models.logprobs import CHUNK_ELEMENTS
from posttrain.learning.models.next_token import head_logits

if TYPE_CHECKING:
    from transformers import PreTrainedModel

OfSlice = Callable[..., tuple[Tensor, ...]]
"""``of_slice(logits_NV, targets_N, *beside)``: tensors with an entry for each token of the slice,
of its logits, its tokens, and its part of what stands beside; a function of nothing else."""


def in_slices(
    model: "PreTrainedModel",
    hidden_ND: Tensor,
    targets_N: Tensor,
    of_slice: OfSlice,
    *beside: Tensor,
) -> tuple[Tensor, ...]:
    """Apply a function to the logits of all tokens, a slice at a time.

    Args:
        model: Whose logits.
        hidden_ND: What `states_before` gave.
        targets_N: The tokens.
        of_slice: What is made of a slice.
        *beside: Further tensors with an entry for each token.

    Returns:
        What `of_slice` gives, of all tokens; with gradient where the states have one.

    """

    def apply(hidden_MD: Tensor, targets_M: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        return of_slice(head_logits(model, hidden_MD), targets_M, *others)

    size = max(1, CHUNK_ELEMENTS // model.get_output_embeddings().weight.shape[0])
    if len(targets_N) <= size:
        return apply(hidden_ND, targets_N, *beside)
    split: list[Sequence[Tensor]] = [
        torch.split(each, size) for each in (hidden_ND, targets_N, *beside)
    ]
    parts = [
        # Nothing in it is random, so no generator needs to be put back when it is computed again.
        checkpoint(apply, *slices, use_reentrant=False, preserve_rng_state=False)
        for slices in zip(*split, strict=True)
    ]
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))
