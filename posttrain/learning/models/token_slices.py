"""What is made of the whole distribution at each wanted token, a slice of tokens at a time.

The logits of a slice exist while it is worked on, and again in its backward pass; never those of
all tokens at once. `logprobs` has the plain log-probabilities.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from posttrain.learning.models.chunks import in_chunks
from posttrain.learning.models.final_logits import FinalLogits, final_logits
from posttrain.learning.models.logprobs import CHUNK_ELEMENTS
from posttrain.learning.models.next_token import logits_by

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
    head: Any = model.get_output_embeddings()
    # Handed over, as the shards of several processes are gathered for the forward pass alone.
    by = of_slice, final_logits(model.config), head.weight, head.bias
    size = max(1, CHUNK_ELEMENTS // head.weight.shape[0])
    return in_chunks(_apply, by, hidden_ND, targets_N, *beside, size=size)


def _apply(
    of_slice: OfSlice,
    final: FinalLogits,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    hidden_MD: Tensor,
    targets_M: Tensor,
    *beside: Tensor,
) -> tuple[Tensor, ...]:
    return of_slice(logits_by(hidden_MD, weight_VD, bias_V, final), targets_M, *beside)
