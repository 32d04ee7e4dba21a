"""The loss of a batch of pairs, composed from the algorithm's switches."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.routed_rows import RoutedRows
from posttrain.data.rows import TokenBatch
from posttrain.learning.algorithms.pair_losses.base import LogRatios, Terms
from posttrain.learning.algorithms.pair_terms.base import PairLikelihoods
from posttrain.learning.algorithms.preference import PreferenceAlgorithm
from posttrain.learning.maths.preference import (
    chosen_likelihood_loss,
    desensitized_logprobs,
    discounted_logprobs,
    kto_reference_point,
    optimism_loss,
    sequence_logprobs,
)
from posttrain.learning.models.logprobs import batch_logprobs

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class PreferenceBatch:
    """Chosen rows, then rejected ones, and what the reference says of them.

    `extra` holds one more row per pair: for KTO the prompt with another pair's completion, for XPO
    a sample of the reference, for terms that ask for it one of the policy. `reference_point` is
    KTO's, of the whole step.
    """

    tokens: TokenBatch
    reference_2B: Tensor
    extra: TokenBatch | None
    extra_reference_B: Tensor
    reference_point: Tensor
    num_units: float

    def to(self, device: str) -> "PreferenceBatch":
        """The same batch on `device`."""
        return PreferenceBatch(
            self.tokens.to(device),
            self.reference_2B.to(device),
            self.extra and self.extra.to(device),
            self.extra_reference_B.to(device),
            self.reference_point.to(device),
            self.num_units,
        )

    def routed(self) -> RoutedRows:
        """Give the tokens of both sides as a router's loss takes them."""
        return self.tokens.routed()


def reduced_logprobs(
    algorithm: PreferenceAlgorithm, model: "PreTrainedModel", tokens: TokenBatch, *, paired: bool
) -> Tensor:
    """Reduce each row to the number that the algorithm works on.

    Args:
        algorithm: Says whether that is a sum or a mean, and how surplus tokens count.
        model: The policy or the reference.
        tokens: The rows.
        paired: True where the first half are chosen, the second half rejected completions of the
            same pairs: only then is there a length that both share, and a discount.

    Returns:
        One number per row in nats, ``[B]``, or ``[2B]`` of pairs.

    """
    logprobs_BT, mask_BT = batch_logprobs(model, tokens)
    if algorithm.length_alpha < 1 and paired:
        shared_B = torch.minimum(*mask_BT.sum(-1).chunk(2))
        return desensitized_logprobs(
            logprobs_BT,
            mask_BT,
            shared_length_B=torch.cat([shared_B, shared_B]),
            alpha=algorithm.length_alpha,
        )
    if algorithm.form.token_discount < 1 and paired:
        return discounted_logprobs(logprobs_BT, mask_BT, gamma=algorithm.form.token_discount)
    return sequence_logprobs(logprobs_BT, mask_BT, per_token=algorithm.per_token)


def batch_loss(
    algorithm: PreferenceAlgorithm,
) -> Callable[["PreTrainedModel", PreferenceBatch, float], Terms]:
    """The loss of a micro-batch, given the pairs of the whole step as its denominator."""

    def loss(model: "PreTrainedModel", batch: PreferenceBatch, denominator: float) -> Terms:
        values_2B = reduced_logprobs(algorithm, model, batch.tokens, paired=True)
        chosen_B, rejected_B = (values_2B - batch.reference_2B).chunk(2)
        facts = batch.tokens.pairs
        known = None if facts is None else (facts.weight_B, facts.label_prob_B)
        weight_B = None if facts is None else facts.weight_B
        gap_B = None if facts is None else facts.gap_B
        total, metrics = algorithm.pair_loss(
            LogRatios(chosen_B, rejected_B, batch.reference_point, denominator, known, gap_B)
        )
        if algorithm.sft_coefficient:
            reduce = _chosen_means if algorithm.sft_per_token else _chosen_sums
            likelihood_B = reduce(algorithm, model, batch, values_2B)
            more, found = chosen_likelihood_loss(
                likelihood_B,
                coefficient=algorithm.sft_coefficient,
                denominator=denominator,
                weight_B=weight_B,
            )
            total, metrics = total + more, {**metrics, **found}
        if algorithm.optimism_coefficient and batch.extra is not None:
            sampled_B = reduced_logprobs(algorithm, model, batch.extra, paired=False)
            more, found = optimism_loss(
                sampled_B,
                coefficient=algorithm.optimism_coefficient,
                denominator=denominator,
                weight_B=weight_B,
            )
            total, metrics = total + more, {**metrics, **found}
        if algorithm.terms:
            likelihoods = _likelihoods(algorithm, model, batch, values_2B, denominator)
            for term in algorithm.terms.values():
                more, told = term.term(likelihoods)
                total, metrics = total + more, {**metrics, **told}
        return total, metrics

    return loss


def _likelihoods(
    algorithm: PreferenceAlgorithm,
    model: "PreTrainedModel",
    batch: PreferenceBatch,
    values_2B: Tensor,
    denominator: float,
) -> PairLikelihoods:
    """What the terms beside the loss are given."""
    own_B = None
    if algorithm.draws_own and batch.extra is not None:
        own_B = reduced_logprobs(algorithm, model, batch.extra, paired=False)
    facts = batch.tokens.pairs
    chosen_B, rejected_B = values_2B.chunk(2)
    reference_chosen_B, reference_rejected_B = batch.reference_2B.chunk(2)
    return PairLikelihoods(
        chosen_B,
        rejected_B,
        reference_chosen_B,
        reference_rejected_B,
        own_B,
        batch.extra_reference_B,
        denominator,
        None if facts is None else facts.weight_B,
    )


def with_reference_point(
    algorithm: PreferenceAlgorithm,
) -> Callable[["PreTrainedModel", list[PreferenceBatch], int], list[PreferenceBatch]]:
    """Give every part of a step KTO's reference point, which depends on all of them."""

    @torch.no_grad()
    def gather(
        model: "PreTrainedModel", parts: list[PreferenceBatch], _step: int
    ) -> list[PreferenceBatch]:
        ratios = [
            reduced_logprobs(algorithm, model, part.extra, paired=False) - part.extra_reference_B
            for part in parts
            if part.extra is not None
        ]
        point = kto_reference_point(torch.cat(ratios))
        return [replace(part, reference_point=point) for part in parts]

    return gather


def _chosen_sums(
    algorithm: PreferenceAlgorithm,
    model: "PreTrainedModel",
    batch: PreferenceBatch,
    values_2B: Tensor,
) -> Tensor:
    """Log-probability of the chosen completions, summed over their tokens. ``[B]``."""
    if algorithm.sums_plainly:
        return values_2B.chunk(2)[0]
    logprobs_BT, mask_BT = batch_logprobs(model, batch.tokens)
    return sequence_logprobs(logprobs_BT, mask_BT).chunk(2)[0]


def _chosen_means(
    algorithm: PreferenceAlgorithm,
    model: "PreTrainedModel",
    batch: PreferenceBatch,
    values_2B: Tensor,
) -> Tensor:
    """Mean log-probability per token of the chosen completions. ``[B]``."""
    if algorithm.per_token:
        return values_2B.chunk(2)[0]
    packing = batch.tokens.packing
    wanted_BT = batch.tokens.wanted_BT if packing is None else packing.wanted_rows_BT
    lengths_B = wanted_BT.sum(-1).chunk(2)[0]
    if algorithm.sums_plainly:
        return values_2B.chunk(2)[0] / lengths_B
    logprobs_BT, mask_BT = batch_logprobs(model, batch.tokens)
    return sequence_logprobs(logprobs_BT, mask_BT, per_token=True).chunk(2)[0]
