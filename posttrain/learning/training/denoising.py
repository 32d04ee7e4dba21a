"""Learning to say what masks hide: masked diffusion, where next-token prediction has the past."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.data.contexts import AnyPrompt, prompt_keys
from posttrain.data.rows import TokenBatch, TokenRow, TokenTable, check_answers, encode_rows
from posttrain.learning.models.mask_predictor import MaskPredictor
from posttrain.learning.models.next_token import head_logits
from posttrain.learning.models.noised_rows import filled_up
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.early_stop import hold_out
from posttrain.learning.training.prepare import remember_answers
from posttrain.learning.training.supervised_objective import SupervisedObjective
from posttrain.learning.training.token_batches import (
    check_fit,
    fitting,
    heldout_batches,
    token_batches,
)
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy

LEAST_SHARE = 1e-3
"""Smallest probability of a mask: its inverse weighs the loss of what is hidden."""


def filled_rows(rows: Sequence[TokenRow], *, canvas: int, end: int) -> list[TokenRow]:
    """Give every answer as many tokens.

    Args:
        rows: Prompts with answers of one turn, which end with an end token.
        canvas: Tokens of an answer.
        end: Id of the end token, which fills answers up.

    Returns:
        The rows, in their order.

    Raises:
        UserError: An answer is longer.

    """
    longest = max((row.num_learned for row in rows), default=0)
    if longest > canvas:
        raise UserError(
            f"an answer has {longest} tokens, and a canvas {canvas}; raise canvas to {longest} or"
            " more, or leave the long rows out of the traces"
        )
    return [
        replace(
            row,
            ids=(*row.ids[: row.start], *filled_up(row.ids[row.start :], canvas=canvas, end=end)),
        )
        for row in rows
    ]


def masked_loss(
    model: "PreTrainedModel", batch: TokenBatch, denominator: float
) -> tuple[Tensor, Mapping[str, Tensor]]:
    """Mask the answers of a micro-batch, each with a probability of its own, and take the loss.

    Draws from torch's generator, which is seeded for every step. LLaDA, arXiv 2502.09992,
    equation 5.

    Args:
        model: Whose base is a `MaskPredictor`.
        batch: Padded rows; what bears loss of them may be masked.
        denominator: Tokens that bear loss, of the whole step.

    Returns:
        The loss, and no metrics.

    """
    share_B, uniform_BT = torch.rand(len(batch.wanted_BT)), torch.rand(batch.wanted_BT.shape)
    share_B = (LEAST_SHARE + (1 - LEAST_SHARE) * share_B).to(batch.wanted_BT.device)
    masked_BT = batch.wanted_BT & (uniform_BT.to(share_B.device) < share_B[:, None])
    return loss_of_masks(model, batch, masked_BT, share_B) / denominator, {}


def loss_of_masks(
    model: "PreTrainedModel", batch: TokenBatch, masked_BT: Tensor, share_B: Tensor
) -> Tensor:
    """Sum up what a mask predictor says too little of what is hidden.

    Args:
        model: Whose base is a `MaskPredictor`.
        batch: Padded rows.
        masked_BT: True at what is hidden.
        share_B: Probability with which each row's tokens were masked.

    Returns:
        ``sum over rows of 1 / share x sum over masks of -log p(hidden token)``, in nats.

    """
    predictor = model.base_model
    assert isinstance(predictor, MaskPredictor)
    ids_BT = batch.input_ids_BT.masked_fill(masked_BT, int(model.config.mask_token_id))
    length_B = _lengths(batch, int(model.config.pad_token_id))
    states_NC = predictor.states(ids_BT, length_B)[masked_BT]
    logits_NV = head_logits(model, states_NC)
    losses_N = F.cross_entropy(logits_NV, batch.input_ids_BT[masked_BT], reduction="none")
    share_N = share_B[:, None].expand_as(masked_BT)[masked_BT]
    return (losses_N / share_N).sum()


def _lengths(batch: TokenBatch, pad: int) -> Tensor:
    return (batch.input_ids_BT != pad).sum(-1)


def masked_objective(
    policy: "Policy",
    prompts: Sequence[AnyPrompt],
    texts: Sequence[str],
    sources: Sequence[str],
    *,
    config: TrainingConfig,
    context: StageContext,
) -> SupervisedObjective[TokenBatch]:
    """Encode, fill the answers up, leave out what is too long, hold out, and plan every step.

    Args:
        policy: A mask predictor; it remembers how long its answers are.
        prompts: What is asked.
        texts: The answer to each.
        sources: Where each row comes from.
        config: Longest row, budgets, passes, early stop.
        context: Of the stage; gives the seed, takes notes.

    Returns:
        The batches of every step, and the loss of masked diffusion.

    Raises:
        UserError: An answer is longer than the policy's canvas, or no row is left.

    """
    check_answers(policy.tokenizer, prompts, texts)
    rows = filled_rows(
        encode_rows(policy.tokenizer, prompts, texts),
        canvas=int(policy.model.config.answer_canvas),
        end=int(policy.tokenizer.eos_token_id),
    )
    kept = fitting(rows, max_length=config.max_length, where=config.STAGE)
    if len(kept) < len(rows):
        context.note(f"left out {len(rows) - len(kept)} rows over {config.max_length} tokens")
    rows, keys = [rows[index] for index in kept], prompt_keys(prompts)
    check_fit(policy, rows)
    remember_answers(policy.model, rows, [sources[index] for index in kept])
    keys = [keys[index] for index in kept]
    taught, held = hold_out(keys, config.learner.early_stop, seed=context.seed)
    learned = [rows[index] for index in taught]
    return SupervisedObjective(
        batches=token_batches(policy, learned, config=config, seed=context.seed),
        loss=masked_loss,
        heldout=heldout_batches(policy, [rows[i] for i in held], config) if held else None,
        digests={"rows": TokenTable(rows, pad=0).digest},
    )
