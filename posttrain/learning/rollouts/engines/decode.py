"""From logits to tokens and their log-probabilities."""

import torch
import torch.nn.functional as F
from torch import Tensor

_BLOCK = 256
"""Values whose running totals are made together on a GPU; a power of two."""


def greedy(logits_BV: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely token of each row and its log-probability at temperature 1, both `[B]`."""
    logits_BV = logits_BV.float()
    if logits_BV.device.type == "cpu":
        # numpy's is vectorised, and torch's is not: a tenth of the time.
        tokens_B = torch.from_numpy(logits_BV.detach().numpy().argmax(-1))
    else:
        tokens_B = logits_BV.argmax(-1)
    return tokens_B, logits_BV.log_softmax(-1).gather(-1, tokens_B[:, None])[:, 0]


def choose_tokens(
    logits_BV: Tensor,
    uniforms_B: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Draw a token for each row by inverting its cumulative distribution at a given number.

    One softmax and one cumulative sum per row, no generator state.

    Args:
        logits_BV: Logits of what comes next.
        uniforms_B: A number in [0, 1) for each row.
        temperature: Divides the logits; above 0.
        top_k: Draws from so many of the likeliest tokens; 0 from all.
        top_p: Draws from the smallest set of tokens with this mass, of what top-k left (Holtzman et
            al., 2019).

    Returns:
        Tokens ``[B]``, and their log-probabilities ``[B]`` in nats under softmax(logits /
        temperature), before the top-k and top-p cuts. NaN where a row's logits are not finite.

    """
    scaled_BV = logits_BV.float()
    if temperature != 1.0:
        scaled_BV = scaled_BV / temperature
    weights_BV = scaled_BV.softmax(-1)
    if top_k or top_p < 1.0:
        weights_BV = _cut(weights_BV, top_k=top_k, top_p=top_p)
    cumulative_BV = running_totals(weights_BV)
    threshold_B1 = (uniforms_B * cumulative_BV[:, -1])[:, None]
    tokens_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True)
    # Past the end where totals are NaN: such a token's log-probability is NaN too, and refused.
    tokens_B1.clamp_(max=logits_BV.shape[1] - 1)
    # The cuts leave the weight of a token that stays as it is.
    return tokens_B1[:, 0], weights_BV.gather(-1, tokens_B1)[:, 0].log()


def _cut(weights_BV: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Zero what lies outside the `top_k` largest, then outside the smallest set of mass `top_p`.

    The nucleus (Holtzman et al., 2019) is taken of what top-k left, as transformers does. A token
    stays while the mass of those before it is below `top_p`, so that the largest always stays.
    """
    ordered_BV, indices_BV = weights_BV.sort(stable=True, dim=-1, descending=True)
    if top_k:
        ordered_BV[:, top_k:] = 0.0
    before_BV = running_totals(ordered_BV) - ordered_BV
    ordered_BV = ordered_BV.where(before_BV < top_p * ordered_BV.sum(-1, keepdim=True), 0.0)
    return torch.zeros_like(weights_BV).scatter_(-1, indices_BV, ordered_BV)


def running_totals(values_BV: Tensor) -> Tensor:
    """Sum each row's values up to and with each.

    On a GPU torch's own sums differ from call to call, and where it is told to be deterministic it
    refuses.

    Args:
        values_BV: Rows of values, not negative.

    Returns:
        Totals ``[B, V]``, equal from call to call.

    """
    return values_BV.cumsum(-1) if values_BV.device.type == "cpu" else scanned(values_BV)


def scanned(values_BV: Tensor) -> Tensor:
    """Compute running totals in float64 by doubling (Hillis and Steele, 1986), in blocks.

    As sums come about in several orders, float32 would give values of 0 totals of their own.

    Args:
        values_BV: Rows of values.

    Returns:
        Totals ``[B, V]``, float64.

    """
    num_rows, num_values = values_BV.shape
    blocks_BCN = F.pad(values_BV.double(), (0, -num_values % _BLOCK)).view(num_rows, -1, _BLOCK)
    within_BCN = _doubled(blocks_BCN)
    before_BC = F.pad(_doubled(within_BCN[..., -1])[:, :-1], (1, 0))
    return (within_BCN + before_BC[..., None]).flatten(1)[:, :num_values].contiguous()


def _doubled(totals: Tensor) -> Tensor:
    """Running totals along the last dimension, in as many steps as its length has bits."""
    distance = 1
    while distance < totals.shape[-1]:
        totals = totals + F.pad(totals[..., :-distance], (distance, 0))
        distance *= 2
    return totals
