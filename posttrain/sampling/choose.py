"""From logits to tokens and their log-probabilities."""

import torch
from torch import Tensor


def greedy(logits_BV: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely token of each row and its log-probability at temperature 1, both `[B]`."""
    logits_BV = logits_BV.float()
    if logits_BV.device.type == "cpu":
        # numpy's is vectorised, and torch's is not: a tenth of the time.
        tokens_B = torch.from_numpy(logits_BV.detach().numpy().argmax(-1))
    else:
        tokens_B = logits_BV.argmax(-1)
    return tokens_B, logits_BV.log_softmax(-1).gather(-1, tokens_B[:, None])[:, 0]


def draw(
    logits_BV: Tensor,
    uniforms_B: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Invert the cumulative distribution at `uniforms_B`: tokens `[B]`, log-probabilities `[B]`.

    One exponential and one cumulative sum per row, no generator state. Log-probabilities are those
    of softmax(logits / temperature), before the top-k and top-p cuts.
    """
    scaled_BV = logits_BV.float()
    if temperature != 1.0:
        scaled_BV = scaled_BV / temperature
    scaled_BV = scaled_BV - scaled_BV.amax(-1, keepdim=True)
    weights_BV = scaled_BV.exp()
    totals_B = weights_BV.sum(-1)
    if top_k or top_p < 1.0:
        weights_BV = _cut(weights_BV, top_k=top_k, top_p=top_p)
    cumulative_BV = weights_BV.cumsum(-1)
    threshold_B1 = (uniforms_B * cumulative_BV[:, -1])[:, None]
    tokens_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True)
    return tokens_B1[:, 0], scaled_BV.gather(-1, tokens_B1)[:, 0] - totals_B.log()


def _cut(weights_BV: Tensor, *, top_k: int, top_p: float) -> Tensor:
    """Zero what lies outside the `top_k` largest, then outside the smallest set of mass `top_p`.

    The nucleus (Holtzman et al., 2019) is taken of what top-k left, as transformers does. A token
    stays while the mass of those before it is below `top_p`, so that the largest always stays.
    """
    ordered_BV, indices_BV = weights_BV.sort(stable=True, dim=-1, descending=True)
    if top_k:
        ordered_BV[:, top_k:] = 0.0
    before_BV = ordered_BV.cumsum(-1) - ordered_BV
    ordered_BV = ordered_BV.where(before_BV < top_p * ordered_BV.sum(-1, keepdim=True), 0.0)
    return torch.zeros_like(weights_BV).scatter_(-1, indices_BV, ordered_BV)
