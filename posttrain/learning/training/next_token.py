"""Next-token prediction on prompts and texts: what pretraining and SFT share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from posttrain.data.batching import Batches, Mixture, length_buckets
from posttrain.data.rows import (
    TokenBatch,
    TokenRow,
    TokenTable,
    check_answers,
    check_rows,
    encode_rows,
    position_ids,
)
from posttrain.learning.models.logprobs import wanted_logprobs
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.curve import Curve
from posttrain.learning.training.early_stop import hold_out
from posttrain.learning.training.packing import check_packing
from posttrain.learning.training.prepare import prepare_for_training
from posttrain.learning.training.supervised import train
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


@dataclass(frozen=True)
class Corpus:
    """Prompts with the texts that follow them, and how much each source weighs."""

    prompts: Sequence[str]
    texts: Sequence[str]
    mask_prompts: bool = True
    mixture: Mixture | None = None

    def take(self, kept: Sequence[int]) -> "Corpus":
        """The rows of these indices."""
        return Corpus(
            [self.prompts[index] for index in kept],
            [self.texts[index] for index in kept],
            self.mask_prompts,
            self.mixture and Mixture([self.mixture.groups[i] for i in kept], self.mixture.shares),
        )


def next_token_loss(
    model: "PreTrainedModel", batch: TokenBatch, denominator: float
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Compute ``-sum(log p(token | past)) / denominator`` over the tokens that bear loss.

    Args:
        model: A causal language model.
        batch: Token ids, and which of them bear loss.
        denominator: Tokens with loss of the whole step, so that micro-batches add up.

    Returns:
        The loss in nats, a scalar with gradient; and no further metrics.

    """
    logprobs_N, _ = wanted_logprobs(
        model, batch.input_ids_BT, wanted_BT=batch.wanted_BT, position_ids_BT=position_ids(batch)
    )
    return -logprobs_N.sum() / denominator, {}


def next_token_objective(
    policy: "Policy",
    corpus: Corpus,
    *,
    config: TrainingConfig,
    context: StageContext,
    where: str,
) -> tuple[SupervisedObjective[TokenBatch], int]:
    """Encode, leave out what is too long, check, hold out, and plan every step.

    Args:
        policy: Model and tokenizer.
        corpus: Prompts and texts, and how they are mixed.
        config: Longest row, budgets, passes, early stop.
        context: Of the stage; gives the seed, takes notes.
        where: Name of the stage, for messages.

    Returns:
        The objective, and the number of rows kept.

    """
    check_answers(policy.tokenizer, corpus.prompts, corpus.texts)
    rows = encode_rows(
        policy.tokenizer, corpus.prompts, corpus.texts, mask_prompts=corpus.mask_prompts
    )
    kept = fitting(rows, max_length=config.max_length, where=where)
    # Said aloud: a limit that drops half of the data would look like a small data set.
    if len(kept) < len(rows):
        context.note(f"left out {len(rows) - len(kept)} rows over {config.max_length} tokens")
    rows, corpus = [rows[index] for index in kept], corpus.take(kept)
    check_fit(policy, rows)
    taught, held = hold_out(corpus.prompts, config.learner.early_stop, seed=context.seed)
    batches = token_batches(
        policy,
        [rows[index] for index in taught],
        corpus.take(taught).mixture,
        config=config,
        seed=context.seed,
    )
    objective = SupervisedObjective(
        batches=batches,
        loss=next_token_loss,
        heldout=heldout_batches(policy, [rows[index] for index in held], config) if held else None,
        digests={"rows": TokenTable(rows, pad=0).digest},
    )
    if config.learner.packing:
        check_packing(policy.model)
    return objective, len(rows)


def fit(
    policy: "Policy",
    corpus: Corpus,
    outputs: Mapping[str, Path],
    *,
    config: TrainingConfig,
    context: StageContext,
    where: str,
) -> dict[str, float]:
    """Train a policy to predict the texts, and save it with its curve.

    Args:
        policy: Trained in place.
        corpus: What it learns from.
        outputs: Paths of `policy` and `curve`.
        config: Budgets, optimization and limits.
        context: Of the stage.
        where: Name of the stage, which its metrics begin with.

    Returns:
        The stage's metrics.

    """
    objective, num_rows = next_token_objective(
        policy, corpus, config=config, context=context, where=where
    )
    trainable = prepare_for_training(policy.model, config.learner, seed=context.seed)
    curve = Curve(context)
    num_steps = train(
        trainable, objective, config=config, context=context, curve=curve, prefix=where
    )
    trainable.save(policy.tokenizer, outputs["policy"])
    curve.write(outputs["curve"])
    return {
        f"{where}/loss": curve.last(f"{where}/loss", window=20),
        f"{where}/num_steps": float(num_steps),
        f"{where}/num_rows": float(num_rows),
        f"{where}/num_too_long": float(len(corpus.texts) - num_rows),
    }


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
    room = int(policy.model.config.get_text_config().max_position_embeddings)
    if longest > room:
        raise UserError(
            f"a row has {longest} tokens, but the model's context is {room}; "
            f"set max_length to {room} or less"
        )


def token_batches(
    policy: "Policy",
    rows: Sequence[TokenRow],
    mixture: Mixture | None = None,
    *,
    config: TrainingConfig,
    seed: int,
) -> Batches[TokenBatch]:
    """Plan every step over the rows.

    Args:
        policy: Its tokenizer gives the padding.
        rows: What is learned from.
        mixture: Shares of the sources; None takes each row once an epoch.
        config: Budgets, passes, packing.
        seed: Of the order.

    Returns:
        The micro-batches of every step.

    """
    lengths = [len(row.ids) for row in rows]
    packed = config.learner.packing
    steps = config.plan(lengths, seed=seed, mixture=mixture)
    table = TokenTable(rows, pad=int(policy.tokenizer.pad_token_id), packed=packed)
    return Batches(steps, lengths, table.batch, config.micro_batch_tokens, packed)


def heldout_batches(
    policy: "Policy", rows: Sequence[TokenRow], config: TrainingConfig
) -> Batches[TokenBatch]:
    """Lay out each row once, in batches of similar length.

    Args:
        policy: Its tokenizer gives the padding.
        rows: What is held out.
        config: Tokens that go through the model at once.

    Returns:
        Batches, never packed.

    """
    lengths = [len(row.ids) for row in rows]
    budget = config.micro_batch_tokens or config.batch_tokens
    steps = length_buckets(range(len(rows)), lengths, budget)
    return Batches(steps, lengths, TokenTable(rows, pad=int(policy.tokenizer.pad_token_id)).batch)


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
