"""Lessons on pairs: what reward models and preference optimisation share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from posttrain.data.batching import Batches, length_buckets, plan_steps
from posttrain.data.pairs import PairTable
from posttrain.data.rows import TokenBatch, TokenRow, check_answers, encode_rows
from posttrain.errors import UserError
from posttrain.pipeline.context import StageContext
from posttrain.training.config import OptimisationConfig
from posttrain.training.heldout import hold_out
from posttrain.training.next_token import check_fit
from posttrain.training.packing import check_packing
from posttrain.training.supervised import Lesson, Loss

if TYPE_CHECKING:
    from posttrain.models.load import Policy


@dataclass(frozen=True)
class PairRows:
    """Token rows of pairs, side by side; `kept` are their places in the frame they came from."""

    chosen: Sequence[TokenRow]
    rejected: Sequence[TokenRow]
    prompts: Sequence[str]
    kept: Sequence[int]
    pad: int

    def lesson(
        self, loss: Loss[TokenBatch], config: OptimisationConfig, context: StageContext
    ) -> Lesson[TokenBatch]:
        """Every step over the pairs; units are pairs."""
        taught, held = hold_out(self.prompts, config.learner.early_stop, seed=context.seed)
        return Lesson(
            batches=self.batches(taught, config, seed=context.seed),
            loss=loss,
            heldout=self.once(held, config) if held else None,
            digests={"pairs": self.table().digest},
        )

    def batches(
        self, taught: Sequence[int], config: OptimisationConfig, *, seed: int
    ) -> Batches[TokenBatch]:
        """The planned steps over the pairs of these indices."""
        packed = config.learner.packing
        lengths = [self._length(index, packed=packed) for index in taught]
        steps = plan_steps(
            lengths,
            batch_tokens=config.batch_tokens,
            epochs=config.epochs,
            num_steps=config.steps,
            seed=seed,
            packed=packed,
        )
        table = self.table(taught, packed=packed)
        return Batches(steps, lengths, table.batch, config.micro_batch_tokens, packed)

    def once(self, held: Sequence[int], config: OptimisationConfig) -> Batches[TokenBatch]:
        """Each of these pairs once."""
        lengths = [self._length(index, packed=False) for index in held]
        steps = length_buckets(range(len(held)), lengths, config.batch_tokens)
        return Batches(steps, lengths, self.table(held).batch)

    def table(self, part: Sequence[int] | None = None, *, packed: bool = False) -> PairTable:
        """The pairs of these indices, or all, ready to be cut into batches."""
        chosen = [self.chosen[i] for i in (range(len(self.chosen)) if part is None else part)]
        rejected = [self.rejected[i] for i in (range(len(self.chosen)) if part is None else part)]
        return PairTable(chosen, rejected, pad=self.pad, packed=packed)

    def _length(self, index: int, *, packed: bool) -> int:
        sides = (len(self.chosen[index].ids), len(self.rejected[index].ids))
        # Both sides of a pair are padded to the longer one.
        return sum(sides) if packed else 2 * max(sides)


def encode_pairs(
    policy: "Policy",
    pairs: pl.DataFrame,
    *,
    config: OptimisationConfig,
    context: StageContext,
    where: str,
) -> PairRows:
    """Token ids of the pairs that fit into `max_length`; refuses what could not be learnt from."""
    prompts = pairs["prompt"].to_list()
    texts = {side: pairs[side].to_list() for side in ("chosen", "rejected")}
    for side in texts.values():
        check_answers(policy.tokenizer, prompts, side)
    chosen, rejected = (encode_rows(policy.tokenizer, prompts, side) for side in texts.values())
    kept = [
        index
        for index, rows in enumerate(zip(chosen, rejected, strict=True))
        if max(len(row.ids) for row in rows) <= config.max_length
    ]
    if not kept:
        raise UserError(f"{where}: no pair fits into max_length {config.max_length}; raise it")
    if len(kept) < len(pairs):
        context.note(f"left out {len(pairs) - len(kept)} pairs over {config.max_length} tokens")
    rows = PairRows(
        chosen=[chosen[index] for index in kept],
        rejected=[rejected[index] for index in kept],
        prompts=[prompts[index] for index in kept],
        kept=kept,
        pad=int(policy.tokenizer.pad_token_id),
    )
    check_fit(policy, [*rows.chosen, *rows.rejected])
    if config.learner.packing:
        check_packing(policy.model)
    return rows
