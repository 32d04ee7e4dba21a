"""Forward passes over rollouts: of the policy, its reference and its critic."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.data.batching import length_buckets
from posttrain.learning.maths.entropy import entropy_from_hidden, entropy_from_logits
from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.final_logits import final_logits
from posttrain.learning.models.logprobs import (
    TokenStatistics,
    hidden_states,
    token_statistics,
)
from posttrain.learning.models.token_slices import in_slices
from posttrain.learning.rl.batch import TrainBatch, TrainSample, collate, lengths_and_groups
from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rl.critic import Critic
from posttrain.learning.rl.reference_policy import ReferencePolicy
from posttrain.learning.rl.turn_learner import TurnLearner
from posttrain.learning.training.prepare import Trainable

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.rl.action_masks.base import TokenMask
    from posttrain.learning.rl.reference_divergence import ReferenceStates
    from posttrain.learning.training.router_loss import RouterLoss

Pass = Callable[[TrainBatch], Tensor]
"""One number per token of a batch, `[B, T]`, without gradient."""


@dataclass
class ModelPasses:
    """What runs models over samples, in batches of similar length."""

    trainable: Trainable
    reference: ReferencePolicy | None
    critic: Critic | None
    config: RlConfig
    pad: int
    device: str
    turn_learner: TurnLearner | None = field(default=None, kw_only=True)
    mask: "TokenMask | None" = field(default=None, kw_only=True)
    """Which tokens the policy may draw; see `masked_passes`, which go by it."""
    router: "RouterLoss | None" = field(default=None, kw_only=True)
    """Keeps a mixture of experts' router even, where that is asked for."""

    def policy(
        self,
        model: "PreTrainedModel",
        input_ids_BT: Tensor,
        mask_BT: Tensor,
        *,
        with_entropy: bool = False,
        with_distribution: bool = False,
    ) -> TokenStatistics:
        """Compute the log-probabilities of the drawn tokens, with gradient; entropies, without.

        Args:
            model: The policy.
            input_ids_BT: Prompts and completions.
            mask_BT: True at the drawn tokens.
            with_entropy: True for the entropy of each distribution, too.
            with_distribution: True for all of it, with gradient.

        Returns:
            In nats, at the temperature that the tokens were drawn with.

        """
        with self.trainable.computing():
            return token_statistics(
                model,
                input_ids_BT,
                wanted_BT=mask_BT,
                temperature=self.config.temperature,
                with_entropy=with_entropy,
                with_distribution=with_distribution,
            )

    def present_logprobs(self, batch: TrainBatch) -> Tensor:
        """Of the policy as it is now. ``[B, T]``."""
        with torch.no_grad():
            return self.policy(self.trainable.model, batch.input_ids_BT, batch.mask_BT).logprobs_BT

    def present_entropy(self, batch: TrainBatch) -> Tensor:
        """Of the policy as it is now, in nats. ``[B, T]``."""
        with torch.no_grad():
            entropy_BT = self.policy(
                self.trainable.model, batch.input_ids_BT, batch.mask_BT, with_entropy=True
            ).entropy_BT
        assert entropy_BT is not None
        return entropy_BT

    def reference_logprobs(self, batch: TrainBatch) -> Tensor:
        """Of the reference policy as it is now. ``[B, T]``."""
        assert self.reference is not None
        with torch.no_grad(), self.reference.reading() as model:
            return self.policy(model, batch.input_ids_BT, batch.mask_BT).logprobs_BT

    def reference_states(self, batch: TrainBatch) -> "ReferenceStates":
        """What whole distributions are compared with; see `reference_divergence`."""
        from posttrain.learning.rl.reference_divergence import reference_states

        assert self.reference is not None
        with self.trainable.computing(), self.reference.reading() as model:
            return reference_states(model, batch)

    def values(self, batch: TrainBatch) -> Tensor:
        """Of the critic, with gradient. ``[B, T]``."""
        assert self.critic is not None
        with self.trainable.computing():
            return self.critic.values(batch)

    def present_values(self, batch: TrainBatch) -> Tensor:
        """Of the critic as it is now. ``[B, T]``."""
        with torch.no_grad():
            return self.values(batch)

    def entropy(self, batch: TrainBatch) -> Tensor:
        """Exact entropy at the drawn tokens in nats, with gradient; 0 at the others. ``[B, T]``."""
        model, temperature = self.trainable.model, self.config.temperature
        hidden_ND, head = _before_the_head(self, batch), model.get_output_embeddings()
        if final_logits(model.config).changes_nothing and head.bias is None:
            entropy_N = entropy_from_hidden(hidden_ND / temperature, head.weight)
        else:

            def of_slice(logits_NV: Tensor, _: Tensor) -> tuple[Tensor]:
                return (entropy_from_logits(logits_NV / temperature),)

            tokens_N = batch.input_ids_BT[batch.mask_BT]
            (entropy_N,) = in_slices(model, hidden_ND, tokens_N, of_slice)
        zeros_BT = entropy_N.new_zeros(batch.mask_BT.shape)
        return zeros_BT.masked_scatter(batch.mask_BT, entropy_N)

    def vocabulary_logprobs(self, batch: TrainBatch) -> Tensor:
        """Mean log-probability of all tokens where one was drawn, as the policy is. ``[B, T]``."""

        def of_slice(logits_NV: Tensor, _: Tensor) -> tuple[Tensor]:
            logits_NV = logits_NV / self.config.temperature
            return (logits_NV.mean(-1) - logits_NV.logsumexp(-1),)

        with torch.no_grad():
            hidden_ND = _before_the_head(self, batch)
            tokens_N = batch.input_ids_BT[batch.mask_BT]
            (mean_N,) = in_slices(self.trainable.model, hidden_ND, tokens_N, of_slice)
        return mean_N.new_zeros(batch.mask_BT.shape).masked_scatter(batch.mask_BT, mean_N)

    def vocabulary_ratio(self, batch: TrainBatch) -> Tensor:
        """How far `vocabulary_logprobs` moved since before the step's first update. ``[B, T]``."""
        if batch.vocabulary_logprobs_BT is None:
            # One update of rollouts that are not stale: the policy before it is this one.
            return torch.zeros_like(batch.sampled_logprobs_BT)
        return self.vocabulary_logprobs(batch) - batch.vocabulary_logprobs_BT

    def rows(self, samples: Sequence[TrainSample], compute: Pass) -> list[tuple[float, ...]]:
        """Compute one number per drawn token of every sample.

        Args:
            samples: In any order.
            compute: The pass over a micro-batch.

        Returns:
            A tuple per sample, in their order.

        """
        found = self._found(samples, compute)
        return [found[place] for place in range(len(samples))]

    def buckets(self, lengths: Sequence[int], groups: Sequence[int]) -> list[list[int]]:
        """Choose which samples, by their lengths and groups, go through the model together.

        Args:
            lengths: Tokens of each sample.
            groups: Id of each sample's group.

        Returns:
            Indices of the samples, micro-batch by micro-batch.

        """
        return self._within(lengths, groups, self.config.updates.micro_batch_tokens)

    def _within(
        self, lengths: Sequence[int], groups: Sequence[int], budget: int
    ) -> list[list[int]]:
        """By length, or whole groups where a part of the algorithm needs those."""
        places = range(len(lengths))
        if "whole_groups" not in self.config.algorithm.needs:
            return length_buckets(places, lengths, budget)
        order = sorted(places, key=lambda place: groups[place])
        wholes = [list(each) for _, each in groupby(order, key=lambda place: groups[place])]
        widths = [max(lengths[place] for place in whole) * len(whole) for whole in wholes]
        return [
            [place for index in bucket for place in wholes[index]]
            for bucket in length_buckets(range(len(wholes)), widths, budget)
        ]

    def _found(self, samples: Sequence[TrainSample], compute: Pass) -> dict[int, tuple[float, ...]]:
        """By place of the sample."""
        rows: dict[int, tuple[float, ...]] = {}
        for bucket in self.buckets(*lengths_and_groups(samples)):
            rows |= rows_of(self, bucket, samples, compute)
        return rows


def rows_of(
    passes: ModelPasses, bucket: Sequence[int], samples: Sequence[TrainSample], compute: Pass
) -> dict[int, tuple[float, ...]]:
    """Compute one number per drawn token of some samples, in one batch.

    Args:
        passes: The models.
        bucket: Places of these samples.
        samples: All of them.
        compute: The pass over the batch.

    Returns:
        A tuple per sample, by its place.

    """
    batch = collate([samples[i] for i in bucket], pad=passes.pad, device=passes.device)
    values = zip(bucket, compute(batch), batch.mask_BT, strict=True)
    return {place: tuple(values_T[mask_T].tolist()) for place, values_T, mask_T in values}


def _before_the_head(passes: ModelPasses, batch: TrainBatch) -> Tensor:
    """The hidden states that the drawn tokens were said from. ``[N, D]``."""
    with passes.trainable.computing():
        hidden_BTD = hidden_states(passes.trainable.model, batch.input_ids_BT)
    return widened(hidden_BTD[:, :-1])[batch.mask_BT[:, 1:]]


def learned(passes: ModelPasses, input_ids_BT: Tensor, mask_BT: Tensor) -> TokenStatistics:
    """Compute what the algorithm asks of the policy at the drawn tokens; see `ModelPasses.policy`.

    Args:
        passes: The policy.
        input_ids_BT: Prompts and completions.
        mask_BT: True at the drawn tokens.

    Returns:
        In nats, with gradient.

    """
    needs = passes.config.algorithm.needs
    return passes.policy(
        passes.trainable.model,
        input_ids_BT,
        mask_BT,
        with_entropy="entropy" in needs,
        with_distribution="distribution" in needs,
    )


def learned_beside_reference(
    passes: ModelPasses, batch: TrainBatch
) -> tuple[TokenStatistics, Tensor]:
    """Compute what `learned` does, and what regularizers make of both whole distributions.

    Args:
        passes: The policy and its reference.
        batch: Rollouts.

    Returns:
        Statistics, and an entry ``[K, B, T]`` for each regularizer that needs
        `reference_divergence`.

    """
    from posttrain.learning.rl.reference_divergence import beside_reference

    reference = passes.reference_states(batch)
    return beside_reference(passes.trainable, reference, passes.config, batch)


def watching_router(passes: ModelPasses) -> AbstractContextManager[list[tuple[Tensor, ...]]]:
    """Hear what routers say of the policy's passes; nothing where nobody asks.

    Args:
        passes: With the loss of the router, where there is one.

    Returns:
        A context; the list gets the logits of each pass, layer by layer.

    """
    policy = passes.trainable.model
    return nullcontext([]) if passes.router is None else passes.router.watching(policy)


def before_updates(
    passes: ModelPasses, samples: Sequence[TrainSample], needs: Collection[str]
) -> dict[str, list[tuple[float, ...]]]:
    """Compute what is to be remembered of the policy before the first update.

    Log-probabilities of the drawn tokens are not among it: see `Buffer.updates`.

    Args:
        passes: The models.
        samples: All of a step.
        needs: Names of `part.NEEDS`.

    Returns:
        A column of `TrainSample` by its name, as `ModelPasses.rows` gives it.

    """
    asked: dict[str, tuple[str, Pass]] = {
        "vocabulary_ratio": ("vocabulary_logprobs", passes.vocabulary_logprobs),
    }
    return {
        column: passes.rows(samples, compute)
        for need, (column, compute) in asked.items()
        if need in needs
    }
