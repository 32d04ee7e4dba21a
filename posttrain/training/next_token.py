"""Next-token prediction on token rows: what pretraining and SFT share."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from posttrain.data.batching import Batches, plan_steps
from posttrain.data.rows import TokenBatch, TokenRow, TokenTable, check_rows
from posttrain.errors import UserError
from posttrain.models.logprobs import wanted_logprobs
from posttrain.training.config import OptimisationConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.models.load import Policy


def next_token_loss(
    model: "PreTrainedModel", batch: TokenBatch, denominator: float
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """``-sum(log p(token | past)) / denominator`` over the tokens that bear loss, in nats."""
    logprobs_N, _ = wanted_logprobs(model, batch.input_ids_BT, wanted_BT=batch.wanted_BT)
    return -logprobs_N.sum() / denominator, {}


def token_batches(
    policy: "Policy",
    rows: Sequence[TokenRow],
    *,
    config: OptimisationConfig,
    seed: int,
    groups: Sequence[str] | None = None,
    mixture: Mapping[str, float] | None = None,
) -> Batches[TokenBatch]:
    """Check the rows against the policy, and plan every step over them."""
    embeddings = policy.model.get_input_embeddings().weight
    check_rows(rows, num_embeddings=embeddings.shape[0])
    lengths = [len(row.ids) for row in rows]
    context = int(policy.model.config.get_text_config().max_position_embeddings)
    if max(lengths) > context:
        raise UserError(
            f"a row has {max(lengths)} tokens, but the model's context is {context}; "
            f"set max_length to {context} or less"
        )
    steps = plan_steps(
        lengths,
        batch_tokens=config.batch_tokens,
        epochs=config.epochs,
        num_steps=config.steps,
        seed=seed,
        groups=groups,
        mixture=mixture,
    )
    table = TokenTable(rows, pad=int(policy.tokenizer.pad_token_id))
    return Batches(steps, lengths, table.batch, config.micro_batch_tokens)


def fitting(rows: Sequence[TokenRow], *, max_length: int, where: str) -> list[int]:
    """Indices of the rows of at most `max_length` tokens; refuses to keep none."""
    kept = [index for index, row in enumerate(rows) if len(row.ids) <= max_length]
    if rows and not kept:
        shortest = min(len(row.ids) for row in rows)
        raise UserError(
            f"{where}: no row fits into max_length {max_length}, the shortest has {shortest} "
            "tokens; raise max_length"
        )
    return kept
