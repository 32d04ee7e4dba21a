"""Token log-probabilities: the one function behind SFT, references, preferences, RL, evaluation.

Everything is aligned with the tokens themselves: entry ``[b, t]`` belongs to ``input_ids_BT[b, t]``
given the tokens before it. Column 0 has no past and is never wanted.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.data.rows import TokenBatch, position_ids
from posttrain.learning.models.backbone import backbone
from posttrain.learning.models.chunks import in_chunks
from posttrain.learning.models.fast_llama import fast_hidden_states, is_fast_llama
from posttrain.learning.models.final_logits import FinalLogits, final_logits
from posttrain.learning.models.narrow import head_product
from posttrain.learning.models.shared_tokens import TokenShare, token_share
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHUNK_ELEMENTS = 1 << 24
"""Logits that exist at a time."""


class TokenLogprobs(NamedTuple):
    """Log-probabilities in nats, and the entropy of the distribution each was drawn from."""

    logprobs_BT: Tensor
    entropy_BT: Tensor | None


class TokenStatistics(NamedTuple):
    """What the wanted tokens of rows are learned from; 0 at the others."""

    logprobs_BT: Tensor
    """In nats, with gradient."""
    entropy_BT: Tensor | None
    """Of the distribution that each was drawn from, without gradient."""
    log_all_NV: Tensor | None
    """Log-probabilities of the whole vocabulary, a row for each wanted token, with gradient."""


class LearnedStatistics(NamedTuple):
    """What the wanted tokens of a batch are learned from, one entry each, row by row."""

    logprobs_N: Tensor
    """Log-probability of the token given its past, in nats."""
    entropy_N: Tensor | None
    """Entropy of the distribution that it was drawn from, without gradient."""
    normalizer_N: Tensor | None
    """Log-sum-exp of the logits that the log-probability was normalized by, with gradient."""
    log_all_NV: Tensor | None = None
    """Log-probabilities of the whole vocabulary, with gradient."""


class _Extras(NamedTuple):
    """What is wanted beside the log-probabilities."""

    entropy: bool
    normalizer: bool
    distribution: bool


def token_logprobs(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    position_ids_BT: Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> TokenLogprobs:
    """Compute the log-probability of each wanted token given its past.

    Logits exist only at wanted positions, `CHUNK_ELEMENTS` of them at a time (recomputed in the
    backward pass), so never ``B x T x V``.

    Args:
        model: Any causal language model of transformers.
        input_ids_BT: Token ids, right-padded (where causal attention needs no mask), or packed.
        wanted_BT: True at the tokens whose log-probability is wanted.
        position_ids_BT: Of packed rows: each restart at 0 begins a sequence of its own.
        temperature: Divides the logits.
        with_entropy: Adds the entropy, which carries no gradient.

    Returns:
        Log-probabilities ``[B, T]`` in nats, exactly 0 at unwanted entries; and entropies, where
        they are asked for.

    """
    extras = _Extras(with_entropy, normalizer=False, distribution=False)
    found = _statistics(model, input_ids_BT, wanted_BT, position_ids_BT, temperature, extras)
    return TokenLogprobs(*_laid_out(found, wanted_BT)[:2])


def token_statistics(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    temperature: float = 1.0,
    with_entropy: bool = False,
    with_distribution: bool = False,
) -> TokenStatistics:
    """Compute what `token_logprobs` does, and all of each distribution where that is asked for.

    Args:
        model: Any causal language model of transformers.
        input_ids_BT: Token ids, right-padded.
        wanted_BT: True at the tokens whose log-probability is wanted.
        temperature: Divides the logits.
        with_entropy: Adds the entropy, which carries no gradient.
        with_distribution: Adds the log-probabilities of the whole vocabulary, all at once.

    Returns:
        What was asked for.

    """
    extras = _Extras(with_entropy, normalizer=False, distribution=with_distribution)
    found = _statistics(model, input_ids_BT, wanted_BT, None, temperature, extras)
    return _laid_out(found, wanted_BT)


def _laid_out(found: LearnedStatistics, wanted_BT: Tensor) -> TokenStatistics:
    flat_N, entropy_N = found.logprobs_N, found.entropy_N
    zeros_BT = flat_N.new_zeros(wanted_BT.shape)
    entropy_BT = None if entropy_N is None else zeros_BT.masked_scatter(wanted_BT, entropy_N)
    logprobs_BT = zeros_BT.masked_scatter(wanted_BT, flat_N)
    return TokenStatistics(logprobs_BT, entropy_BT, found.log_all_NV)


def batch_logprobs(model: "PreTrainedModel", batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Compute the log-probabilities of a batch's wanted tokens, a row each, packed or padded.

    Args:
        model: A causal language model.
        batch: Token ids, and which of them are wanted.

    Returns:
        Log-probabilities in nats, 0 where none is wanted; and the mask of the wanted ones. Both
        ``[B, T]``, of a packed batch with one row per sequence.

    """
    if batch.packing is None:
        found = token_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
        return found.logprobs_BT, batch.wanted_BT
    flat_N, _ = wanted_logprobs(
        model,
        batch.input_ids_BT,
        wanted_BT=batch.wanted_BT,
        position_ids_BT=position_ids(batch),
    )
    mask_BT = batch.packing.wanted_rows_BT
    return flat_N.new_zeros(mask_BT.shape).masked_scatter(mask_BT, flat_N), mask_BT


def wanted_logprobs(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    position_ids_BT: Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute what `token_logprobs` does, with one entry per wanted token.

    Args:
        model: A causal language model with an output embedding.
        input_ids_BT: Token ids, padded or packed.
        wanted_BT: True at the tokens whose log-probability is asked for.
        position_ids_BT: Position of each token in its own sequence; None counts from each row's
            start.
        temperature: Divides the logits.
        with_entropy: True for the entropy of each distribution, too.

    Returns:
        Log-probabilities in nats, ``[N]`` in row-major order, and entropies ``[N]`` or None.

    Raises:
        ValueError: The first token of a row is wanted.

    """
    found = wanted_statistics(
        model,
        input_ids_BT,
        wanted_BT=wanted_BT,
        position_ids_BT=position_ids_BT,
        temperature=temperature,
        with_entropy=with_entropy,
    )
    return found.logprobs_N, found.entropy_N


def wanted_statistics(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    position_ids_BT: Tensor | None = None,
    temperature: float = 1.0,
    with_entropy: bool = False,
    with_normalizer: bool = False,
) -> LearnedStatistics:
    """Compute what `wanted_logprobs` does, and the normalizer of every wanted token.

    Args:
        model: A causal language model with an output embedding.
        input_ids_BT: Token ids, padded or packed.
        wanted_BT: True at the tokens that are asked for.
        position_ids_BT: Position of each token in its own sequence; None counts from each row's
            start.
        temperature: Divides the logits.
        with_entropy: True for the entropy of each distribution, too.
        with_normalizer: True for the log-sum-exp of each token's logits, too.

    Returns:
        Entries ``[N]`` in row-major order.

    Raises:
        ValueError: The first token of a row is wanted.

    """
    extras = _Extras(with_entropy, with_normalizer, distribution=False)
    return _statistics(model, input_ids_BT, wanted_BT, position_ids_BT, temperature, extras)


def _statistics(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    wanted_BT: Tensor,
    position_ids_BT: Tensor | None,
    temperature: float,
    extras: _Extras,
) -> LearnedStatistics:
    if bool(wanted_BT[:, 0].any()):
        raise ValueError("the first token of a row has no past and so no log-probability")
    share = token_share()
    if share is not None:
        return _shared_statistics(
            model, (input_ids_BT, wanted_BT, position_ids_BT), temperature, extras, share
        )
    before_BT = F.pad(wanted_BT[:, 1:], (0, 1))
    hidden_ND = states_at(
        model,
        input_ids_BT,
        wanted_BT=before_BT,
        starts_B=wanted_BT.int().argmax(-1),
        position_ids_BT=position_ids_BT,
    )
    return _said_of(model, hidden_ND, input_ids_BT[wanted_BT], temperature, extras)


def _shared_statistics(
    model: "PreTrainedModel",
    batch: tuple[Tensor, Tensor, Tensor | None],
    temperature: float,
    extras: _Extras,
    share: TokenShare,
) -> LearnedStatistics:
    """Compute them together with other processes, each of which has the same batch."""
    if extras.distribution:
        raise UserError(
            "context_parallel: this loss reads whole distributions, which are not put together over"
            " processes; do without one of the two"
        )
    with share.taking(*batch) as own:
        states_1TD = hidden_states(model, own.ids_1T, position_ids_BT=own.positions_1T)
    found = _said_of(model, states_1TD[own.before_1T], own.targets_N, temperature, extras)
    return LearnedStatistics(
        own.together(found.logprobs_N),
        None if found.entropy_N is None else own.together(found.entropy_N),
        None if found.normalizer_N is None else own.together(found.normalizer_N),
    )


def _said_of(
    model: "PreTrainedModel",
    hidden_ND: Tensor,
    targets_N: Tensor,
    temperature: float,
    extras: _Extras,
) -> LearnedStatistics:
    """What the head says of tokens, `CHUNK_ELEMENTS` logits at a time."""
    head: Any = model.get_output_embeddings()
    final = final_logits(model.config)
    by = head.weight, head.bias, final, temperature, extras
    size = max(1, CHUNK_ELEMENTS // head.weight.shape[0])
    return LearnedStatistics(*in_chunks(_logprobs, by, hidden_ND, targets_N, size=size))


def states_at(
    model: "PreTrainedModel",
    input_ids_BT: Tensor,
    *,
    wanted_BT: Tensor,
    starts_B: Tensor,
    position_ids_BT: Tensor | None = None,
) -> Tensor:
    """Compute last hidden states at the wanted positions alone.

    Args:
        model: Any causal language model or sequence classifier of transformers.
        input_ids_BT: Token ids, right-padded or packed.
        wanted_BT: True where a state is wanted.
        starts_B: Position at which each row's completion begins: small Llamas on a CPU compute once
            what rows share up to there.
        position_ids_BT: Of packed rows.

    Returns:
        States ``[W, D]``, row by row.

    Raises:
        UserError: Several processes compute the tokens together.

    """
    if token_share() is not None:
        raise UserError(
            "learner.context_parallel puts log-probabilities together, and this stage reads hidden"
            " states; leave it out here"
        )
    if position_ids_BT is None and is_fast_llama(model):
        return fast_hidden_states(model, input_ids_BT, wanted_BT=wanted_BT, starts_B=starts_B)
    return hidden_states(model, input_ids_BT, position_ids_BT=position_ids_BT)[wanted_BT]


def hidden_states(
    model: "PreTrainedModel", input_ids_BT: Tensor, *, position_ids_BT: Tensor | None = None
) -> Tensor:
    """Compute the last hidden states, ready for the output head.

    Given positions and no mask, transformers reads the borders of packed rows off the positions,
    whatever the attention.

    Args:
        model: Any causal language model or sequence classifier of transformers.
        input_ids_BT: Token ids, right-padded or packed.
        position_ids_BT: Of packed rows: each restart at 0 begins a sequence of its own.

    Returns:
        States ``[B, T, D]``.

    """
    options = {} if position_ids_BT is None else {"position_ids": position_ids_BT}
    states_BTD: Tensor = backbone(model)(
        input_ids=input_ids_BT, use_cache=False, **options
    ).last_hidden_state
    return states_BTD


def _logprobs(
    weight_VD: Tensor,
    bias_V: Tensor | None,
    final: FinalLogits,
    temperature: float,
    extras: _Extras,
    hidden_ND: Tensor,
    targets_N: Tensor,
) -> LearnedStatistics:
    # Under autocast the head would round the logits, which a loss over many tokens does not bear.
    with torch.autocast(hidden_ND.device.type, enabled=False):
        logits_NV = final(head_product(hidden_ND, weight_VD, bias_V)).float()
    if temperature != 1.0:
        logits_NV = logits_NV / temperature
    logprobs_N = -F.cross_entropy(logits_NV, targets_N, reduction="none")
    normalizer_N = logits_NV.logsumexp(-1) if extras.normalizer else None
    log_all_NV = logits_NV.log_softmax(-1) if extras.distribution else None
    if not extras.entropy:
        return LearnedStatistics(logprobs_N, None, normalizer_N, log_all_NV)
    with torch.no_grad():
        all_NV = logits_NV.log_softmax(-1)
        entropy_N = -(all_NV.exp() * all_NV).sum(-1)
    return LearnedStatistics(logprobs_N, entropy_N, normalizer_N, log_all_NV)
