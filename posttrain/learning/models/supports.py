"""Distributions by a few of their tokens: a teacher's likeliest ones, and a student's of the same.

All other tokens count together, as one further outcome.
"""

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.data.rows import TokenBatch, position_ids
from posttrain.data.soft_targets import SoftTargets
from posttrain.learning.models.next_token import states_before
from posttrain.learning.models.token_slices import in_slices

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class OfSupport(NamedTuple):
    """What a model says of wanted tokens, and of those that a teacher held to be likely."""

    logprobs_N: Tensor
    """Of the tokens themselves, in nats, at temperature 1."""
    support_NK: Tensor
    """Log-probabilities of the teacher's tokens, at the teacher's temperature."""
    rest_N: Tensor
    """Log of the probability of all tokens but these; -inf where these are all."""


def on_support(model: "PreTrainedModel", batch: TokenBatch, targets: SoftTargets) -> OfSupport:
    """Compute what a student says of a teacher's likeliest tokens.

    Args:
        model: The student.
        batch: Token ids, and which of them are wanted; padded or packed.
        targets: What the teacher says of the wanted tokens, row by row.

    Returns:
        Log-probabilities, with gradient.

    """
    hidden_ND = states_before(
        model,
        batch.input_ids_BT,
        wanted_BT=batch.wanted_BT,
        position_ids_BT=position_ids(batch),
    )
    tokens_N = batch.input_ids_BT[batch.wanted_BT]
    of_slice = partial(_on_support, temperature=targets.temperature)
    return OfSupport(*in_slices(model, hidden_ND, tokens_N, of_slice, targets.ids_NK))


def likeliest_tokens(
    model: "PreTrainedModel",
    batch: TokenBatch,
    *,
    top_k: int,
    temperature: float,
    num_tokens: int,
) -> tuple[Tensor, SoftTargets]:
    """Compute a teacher's likeliest tokens where it has read all before.

    Args:
        model: The teacher.
        batch: Token ids, and which of them are wanted.
        top_k: How many tokens of each distribution; at most `num_tokens`.
        temperature: Divides the logits.
        num_tokens: Ids from here on belong to no token, only to the embedding's padding: they
            are never among the likeliest, and count with all others.

    Returns:
        The log-probabilities of the wanted tokens themselves at temperature 1 ``[N]``, and the
        distributions, by descending probability.

    """
    with torch.no_grad():
        hidden_ND = states_before(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        tokens_N = batch.input_ids_BT[batch.wanted_BT]
        of_slice = partial(_likeliest, top_k=top_k, temperature=temperature, num_tokens=num_tokens)
        logprobs_N, ids_NK, top_NK, rest_N = in_slices(model, hidden_ND, tokens_N, of_slice)
    return logprobs_N, SoftTargets(ids_NK, top_NK, rest_N, temperature)


def _on_support(
    logits_NV: Tensor, tokens_N: Tensor, ids_NK: Tensor, *, temperature: float
) -> tuple[Tensor, ...]:
    logprobs_N = -F.cross_entropy(logits_NV, tokens_N, reduction="none")
    softened_NV = logits_NV if temperature == 1.0 else logits_NV / temperature
    whole_N = softened_NV.logsumexp(-1)
    # A table's ids are of 32 bits.
    ids_NK = ids_NK.long()
    support_NK = softened_NV.gather(-1, ids_NK) - whole_N[:, None]
    return logprobs_N, support_NK, _rest(softened_NV, whole_N, ids_NK)


def _likeliest(
    logits_NV: Tensor, tokens_N: Tensor, *, top_k: int, temperature: float, num_tokens: int
) -> tuple[Tensor, ...]:
    logprobs_N = -F.cross_entropy(logits_NV, tokens_N, reduction="none")
    softened_NV = logits_NV if temperature == 1.0 else logits_NV / temperature
    whole_N = softened_NV.logsumexp(-1)
    top_NK, ids_NK = softened_NV[:, :num_tokens].topk(top_k)
    return logprobs_N, ids_NK, top_NK - whole_N[:, None], _rest(softened_NV, whole_N, ids_NK)


def _rest(logits_NV: Tensor, whole_N: Tensor, ids_NK: Tensor) -> Tensor:
    """The others' own log-sum-exp: 1 less the sum of the likeliest has no digits near 0."""
    if ids_NK.shape[1] >= logits_NV.shape[1]:
        return torch.full_like(whole_N, -torch.inf)
    return logits_NV.scatter(-1, ids_NK, -torch.inf).logsumexp(-1) - whole_N
