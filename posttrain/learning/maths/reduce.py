"""Masked reductions, and the aggregation of per-token losses into one number."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal[
    "token_mean",
    "sequence_mean_token_mean",
    "sequence_mean_token_sum",
    "constant_length",
]
Spread = Literal["sample", "population"]
Metrics = dict[str, Tensor]


def widened(values: Tensor) -> Tensor:
    """The values in float32 at least: sums in half precision lose the small terms."""
    return values if values.dtype == torch.float64 else values.float()


def masked_sum(values_BT: Tensor, mask_BT: Tensor, dim: int | None = None) -> Tensor:
    """Sum over the valid tokens.

    Half precision is summed in float32. NaN and infinity at masked positions do not count.

    Args:
        values_BT: What to sum.
        mask_BT: The valid tokens.
        dim: Along which dimension; None sums all.

    Returns:
        The sum; over no token it is 0.

    """
    wide_BT = widened(values_BT)
    kept_BT = torch.where(mask_BT.bool(), wide_BT, torch.zeros_like(wide_BT))
    return kept_BT.sum() if dim is None else kept_BT.sum(dim)


def masked_mean(values_BT: Tensor, mask_BT: Tensor, dim: int | None = None) -> Tensor:
    """Take the mean over the valid tokens.

    Args:
        values_BT: One number per token.
        mask_BT: Nonzero at the valid tokens.
        dim: The dimension to average along; None for one mean over all tokens of the batch.

    Returns:
        A scalar, or ``[B]`` for ``dim=-1``; 0 where no token is valid.

    """
    valid_BT = mask_BT.bool()
    num_valid = valid_BT.sum() if dim is None else valid_BT.sum(dim)
    # 0 / 0 would be NaN, and a NaN in one row is a NaN in the gradient of all.
    return masked_sum(values_BT, mask_BT, dim) / num_valid.clamp(min=1)


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


def _equal_weights(mask_BT: Tensor) -> Tensor:
    return mask_BT.double()


def _weights_within_sequence(mask_BT: Tensor) -> Tensor:
    return mask_BT.double() / mask_BT.bool().sum(-1, keepdim=True).clamp(min=1)


TOKEN_WEIGHT_FORMULAS: dict[Aggregation, Callable[[Tensor], Tensor]] = {
    "token_mean": _equal_weights,
    "sequence_mean_token_mean": _weights_within_sequence,
    "sequence_mean_token_sum": _equal_weights,
    "constant_length": _equal_weights,
}


def token_weights(mask_BT: Tensor, aggregation: Aggregation) -> Tensor:
    """Weigh each token, so that ``loss = sum(weight x token loss) / denominator``.

    The weights depend on nothing but a sequence's own mask, so they may be taken before packing.

    Args:
        mask_BT: The valid tokens.
        aggregation: How tokens and sequences are averaged.

    Returns:
        Weights ``[B, T]``, float64: ``1 / length`` of its sequence for
        ``sequence_mean_token_mean``, else 1; 0 at masked tokens.

    """
    return TOKEN_WEIGHT_FORMULAS[aggregation](mask_BT.bool())


def loss_denominator(
    mask_BT: Tensor, aggregation: Aggregation, *, constant_length: int | None = None
) -> Tensor:
    """Count what one part of a batch adds to the denominator of the loss.

    ======================== ============================ ==================================
    aggregation              denominator                  source
    ======================== ============================ ==================================
    token_mean               valid tokens                 DAPO, arXiv 2503.14476
    sequence_mean_token_mean sequences                    GRPO, arXiv 2402.03300
    sequence_mean_token_sum  sequences                    REINFORCE of whole sequences
    constant_length          sequences x constant_length  Dr.GRPO, arXiv 2503.20783
    ======================== ============================ ==================================

    The denominator of a batch is the sum of this over its micro-batches and ranks. Sequences
    without a valid token do not count, so rows that only fill up a batch change nothing.

    Args:
        mask_BT: The valid tokens of the part.
        aggregation: Which row of the table.
        constant_length: Dr.GRPO's constant, the *generation limit* in tokens; the width of the
            padded batch is not a constant.

    Returns:
        A scalar.

    Raises:
        ValueError: The aggregation is ``constant_length``, and there is none.

    """
    if aggregation == "token_mean":
        return mask_BT.bool().sum()
    num_sequences = mask_BT.bool().any(-1).sum()
    if aggregation != "constant_length":
        return num_sequences
    if constant_length is None:
        raise ValueError(
            "aggregation 'constant_length' needs constant_length, the generation limit"
        )
    return num_sequences * constant_length


def aggregate(
    loss_BT: Tensor, mask_BT: Tensor, *, aggregation: Aggregation, denominator: Tensor | float
) -> Tensor:
    """Compute ``sum(weight x loss) / denominator``: a part's share of the loss of the whole batch.

    Args:
        loss_BT: Loss of each token.
        mask_BT: The valid tokens.
        aggregation: How tokens and sequences are averaged.
        denominator: The whole batch's; see ``loss_denominator``.

    Returns:
        A scalar. A part without a valid token gives 0, with a gradient of 0.

    """
    wide_BT = widened(loss_BT)
    weights_BT = token_weights(mask_BT, aggregation).to(wide_BT.dtype)
    return masked_sum(wide_BT * weights_BT, mask_BT) / denominator


def detached(metrics: Mapping[str, Tensor]) -> Metrics:
    """The metrics cut off from the graph, so that keeping them does not keep the activations."""
    return {name: value.detach() for name, value in metrics.items()}
