"""Rows of tokens that a policy can learn from, the batches that they make, and a batch's loss."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from posttrain.data.batching import Batches, Mixture, length_buckets
from posttrain.data.rows import (
    LearnedFacts,
    RowFacts,
    TokenBatch,
    TokenRow,
    TokenTable,
    check_rows,
    learned_ends,
    position_ids,
)
from posttrain.learning.models.context import context_length
from posttrain.learning.models.logprobs import LearnedStatistics, wanted_logprobs, wanted_statistics
from posttrain.learning.training.asking import ask
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.packing import prepare_packing
from posttrain.learning.training.prepare import precision_of
from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss
from posttrain.learning.training.row_losses.cross_entropy import CrossEntropy
from posttrain.learning.training.supervised_objective import Loss
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy
    from posttrain.learning.models.supports import OfSupport


def check_fit(policy: "Policy", rows: Sequence[TokenRow]) -> None:
    """Refuse rows that the policy cannot embed, has no place for, or cannot learn from.

    Args:
        policy: Its model's vocabulary and context are the limits.
        rows: At least one.

    Raises:
        UserError: A token has no embedding, a row bears no loss, or it is longer than the context.

    """
    embeddings = policy.model.get_input_embeddings().weight
    check_rows(rows, num_embeddings=embeddings.shape[0])
    longest = max(len(row.ids) for row in rows)
    room = context_length(policy.model.config)
    if longest > room:
        raise UserError(
            f"a row has {longest} tokens, but the model's context is {room}; "
            f"set max_length to {room} or less"
        )


def prepare_packed(policy: "Policy", config: TrainingConfig) -> None:
    """Make a model ready for packed rows, where the config packs; see `prepare_packing`.

    Args:
        policy: The model.
        config: Says whether rows are packed.

    """
    if config.learner.packing:
        prepare_packing(policy.model, config.learner.attention)


def token_batches(
    policy: "Policy",
    rows: Sequence[TokenRow],
    mixture: Mixture | None = None,
    *,
    config: TrainingConfig,
    seed: int,
    facts: RowFacts | None = None,
    losses: Sequence[float] | None = None,
) -> Batches[TokenBatch]:
    """Plan every step over the rows.

    Args:
        policy: Its tokenizer gives the padding.
        rows: What is learned from.
        mixture: Shares of the sources; None takes each row once an epoch.
        config: Budgets, passes, packing.
        seed: Of the order.
        facts: Weights and judgments of the rows; None where all count alike.
        losses: Of each row by the policy as it is, where rows are drawn by them.

    Returns:
        The micro-batches of every step.

    """
    lengths = [len(row.ids) for row in rows]
    packed = config.learner.packing
    steps = config.plan(lengths, seed=seed, mixture=mixture, losses=losses)
    table = TokenTable(rows, pad=int(policy.tokenizer.pad_token_id), packed=packed, facts=facts)
    return Batches(steps, lengths, table.batch, config.micro_batch_tokens, packed)


def heldout_batches(
    policy: "Policy",
    rows: Sequence[TokenRow],
    config: TrainingConfig,
    facts: RowFacts | None = None,
) -> Batches[TokenBatch]:
    """Lay out each row once, in batches of similar length.

    Args:
        policy: Its tokenizer gives the padding.
        rows: What is held out.
        config: Tokens that go through the model at once.
        facts: Weights and judgments of the rows; None where all count alike.

    Returns:
        Batches, never packed.

    """
    lengths = [len(row.ids) for row in rows]
    budget = config.micro_batch_tokens or config.batch_tokens
    steps = length_buckets(range(len(rows)), lengths, budget)
    table = TokenTable(rows, pad=int(policy.tokenizer.pad_token_id), facts=facts)
    return Batches(steps, lengths, table.batch)


@torch.no_grad()
def reference_logprobs(
    policy: "Policy", rows: Sequence[TokenRow], config: TrainingConfig
) -> list[Tensor]:
    """Compute what the policy as it is says of the rows, before it learns from them.

    Args:
        policy: As the stage starts from it.
        rows: Tokens, and where those begin that bear loss.
        config: Tokens that go through the model at once, and the precision of that.

    Returns:
        Log-probabilities in nats of each row's learned tokens.

    """
    policy.model.eval()
    batches = heldout_batches(policy, rows, config)

    def asked(model: "PreTrainedModel") -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}
        for step, members in enumerate(batches.steps):
            batch = batches.micro_batches(step)[0].to(model.device)
            with precision_of(config.learner, model):
                logprobs_N, _ = wanted_logprobs(
                    model, batch.input_ids_BT, wanted_BT=batch.wanted_BT
                )
            counts = [rows[index].num_learned for index in members]
            found |= zip(members, torch.split(logprobs_N.cpu(), counts), strict=True)
        return found

    said = ask(policy.model, asked)
    return [said[index] for index in range(len(rows))]


def fitting(rows: Sequence[TokenRow], *, max_length: int, where: str) -> list[int]:
    """Choose the rows that are not too long.

    Args:
        rows: All of them.
        max_length: Most tokens, prompt and completion together.
        where: Name of the stage, for the message.

    Returns:
        Indices of those that fit, ascending.

    Raises:
        UserError: None fits.

    """
    kept = [index for index, row in enumerate(rows) if len(row.ids) <= max_length]
    if rows and not kept:
        shortest = min(len(row.ids) for row in rows)
        raise UserError(
            f"{where}: no row fits into max_length {max_length}, the shortest has {shortest} "
            "tokens; raise max_length"
        )
    return kept


LossOf = Callable[[Any], RowLoss]
"""Finds the loss of a row in a stage's config, at a step whose numbers may have changed."""


def cross_entropy(_: Any) -> RowLoss:
    """Learn rows by cross-entropy, whatever the config."""
    return CrossEntropy()


def loss_by(part: RowLoss) -> Loss[TokenBatch]:
    """Make the loss of a micro-batch out of what a token costs.

    Args:
        part: Gives every learned token its loss.

    Returns:
        ``loss(model, batch, denominator)``: the sum over the tokens that bear loss, each weighted
        as its row is, divided by the denominator, so that micro-batches add up; and no metrics.

    """

    def loss(
        model: "PreTrainedModel", batch: TokenBatch, denominator: float
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        losses_N = part.losses(_learned_tokens(batch, *_statistics(model, batch, part.NEEDS)))
        if batch.facts is not None:
            losses_N = batch.facts.weights_N * losses_N
        return losses_N.sum() / denominator, {}

    return loss


def _statistics(
    model: "PreTrainedModel", batch: TokenBatch, needs: Collection[str]
) -> "tuple[LearnedStatistics, OfSupport | None]":
    """What the model says of the learned tokens, and of those that a teacher holds to be likely."""
    if "targets" in needs:
        from posttrain.learning.models.supports import on_support

        assert batch.facts is not None
        assert batch.facts.targets is not None
        support = on_support(model, batch, batch.facts.targets)
        return LearnedStatistics(support.logprobs_N, None, None), support
    found = wanted_statistics(
        model,
        batch.input_ids_BT,
        wanted_BT=batch.wanted_BT,
        position_ids_BT=position_ids(batch),
        with_normalizer="normalizers" in needs,
    )
    return found, None


def _learned_tokens(
    batch: TokenBatch, found: LearnedStatistics, support: "OfSupport | None"
) -> LearnedTokens:
    """Put what the model says beside what is known of the rows; without facts all are right."""
    zeros_N = found.logprobs_N.detach() * 0.0
    known = batch.facts or LearnedFacts(
        zeros_N + 1.0, zeros_N == 0, zeros_N + 1.0, zeros_N, zeros_N
    )
    return LearnedTokens(
        logprobs_N=found.logprobs_N,
        positives_N=known.positives_N,
        solve_rates_N=known.solve_rates_N,
        ends_N=learned_ends(batch),
        reference_N=known.reference_N,
        advantages_N=known.advantages_N,
        normalizers_N=found.normalizer_N,
        targets=known.targets,
        support=support,
    )


next_token_loss = loss_by(CrossEntropy())
"""``-sum(log p(token | past)) / denominator`` over the tokens that bear loss, in nats."""
