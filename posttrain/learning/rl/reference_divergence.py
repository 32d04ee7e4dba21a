"""The policy beside its reference by whole distributions, in one pass of each over a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from posttrain.learning.models.final_logits import FinalLogits, final_logits
from posttrain.learning.models.logprobs import TokenStatistics
from posttrain.learning.models.next_token import logits_by, states_before
from posttrain.learning.models.token_slices import in_slices
from posttrain.learning.rl.batch import TrainBatch
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.training.prepare import Trainable
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ReferenceStates(NamedTuple):
    """What a reference says of the drawn tokens of a batch, before and by its head."""

    states_ND: Tensor
    weight_VD: Tensor
    """Of its head."""
    bias_V: Tensor | None
    final: FinalLogits


OfDistributions = Callable[[Tensor, Tensor], Tensor]
"""``of(policy_NV, reference_NV)``: a number for each token, of log-probabilities of all tokens."""


@torch.no_grad()
def reference_states(
    model: "PreTrainedModel", batch: TrainBatch, *, copied: bool = False
) -> ReferenceStates:
    """Read a batch as the reference, up to its head.

    Args:
        model: The reference.
        batch: Rollouts.
        copied: True to copy the head, as of a model in shards, which is whole within a call alone:
            it is asked again in the backward pass.

    Returns:
        States of all drawn tokens, and the head.

    """
    states_ND = states_before(model, batch.input_ids_BT, wanted_BT=batch.mask_BT)
    head: Any = model.get_output_embeddings()
    weight_VD, bias_V = head.weight.detach(), None if head.bias is None else head.bias.detach()
    if copied:
        weight_VD, bias_V = weight_VD.clone(), None if bias_V is None else bias_V.clone()
    return ReferenceStates(states_ND, weight_VD, bias_V, final_logits(model.config))


def beside_reference(
    trainable: Trainable, reference: ReferenceStates, config: RlConfig, batch: TrainBatch
) -> tuple[TokenStatistics, Tensor]:
    """Compute what `ModelPasses.policy` does, and what regularizers make of both distributions.

    The policy's states of all drawn tokens are held, and the reference's; their logits exist for a
    slice of tokens at a time, and again in its backward pass.

    Args:
        trainable: The policy.
        reference: Of the model that it is compared with, on this batch.
        config: Temperature, and the algorithm, whose regularizers compare.
        batch: Rollouts.

    Returns:
        Statistics at the temperature that was drawn with, and an entry ``[K, B, T]`` for each
        regularizer that needs `reference_divergence`, in the algorithm's order.

    Raises:
        UserError: The policy embeds more tokens than its reference says anything of.

    """
    algorithm, mask_BT = config.algorithm, batch.mask_BT
    asking = [
        each.of_distributions
        for each in algorithm.regularizers.values()
        if "reference_divergence" in each.needs
    ]
    with trainable.computing():
        states_ND = states_before(trainable.model, batch.input_ids_BT, wanted_BT=mask_BT)
    comparison = _Comparison(
        reference,
        config.temperature,
        asking,
        with_entropy="entropy" in algorithm.needs,
        with_distribution="distribution" in algorithm.needs,
    )
    tokens_N = batch.input_ids_BT[mask_BT]
    logprobs_N, divergences_NK, *more = in_slices(
        trainable.model, states_ND, tokens_N, comparison.of_slice, reference.states_ND
    )
    whole_NV = more.pop() if comparison.with_distribution else None
    zeros_BT = logprobs_N.new_zeros(mask_BT.shape)
    laid_out = [zeros_BT.masked_scatter(mask_BT, each) for each in divergences_NK.unbind(-1)]
    entropy_BT = zeros_BT.masked_scatter(mask_BT, more[0]) if more else None
    found = TokenStatistics(zeros_BT.masked_scatter(mask_BT, logprobs_N), entropy_BT, whole_NV)
    return found, torch.stack(laid_out)


@dataclass(frozen=True)
class _Comparison:
    """What is made of a slice of the policy's logits and the reference's states there."""

    reference: ReferenceStates
    temperature: float
    asking: Sequence[OfDistributions]
    with_entropy: bool
    with_distribution: bool

    def of_slice(
        self, logits_NV: Tensor, tokens_N: Tensor, beside_ND: Tensor
    ) -> tuple[Tensor, ...]:
        """Give log-probabilities, divergences, and what else is wanted; see `in_slices`."""
        logits_NV = logits_NV / self.temperature
        policy_NV = logits_NV.log_softmax(-1)
        with torch.no_grad():
            said_NV = logits_by(beside_ND, *self.reference[1:])
            reference_NV = (said_NV / self.temperature).log_softmax(-1)
        # Embeddings may be padded to another size behind the tokens that both have: the policy,
        # where it has no such entry, never draws it.
        reference_NV = reference_NV[:, : policy_NV.shape[1]]
        if reference_NV.shape[1] < policy_NV.shape[1]:
            raise UserError(
                f"rl.inputs.reference: the policy embeds {policy_NV.shape[1]} tokens and the"
                f" reference says something of {reference_NV.shape[1]}; take a reference with as"
                " many, or regularizer kl, which goes by the tokens drawn"
            )
        found_NK = torch.stack([of(policy_NV, reference_NV) for of in self.asking], dim=-1)
        made = [-F.cross_entropy(logits_NV, tokens_N, reduction="none"), found_NK]
        if self.with_entropy:
            made.append(-(policy_NV.exp() * policy_NV).sum(-1).detach())
        return (*made, policy_NV) if self.with_distribution else tuple(made)
