"""Supervised objectives on pairs: what reward models and preference optimization share."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import torch
from torch import Tensor

from posttrain.data.batching import AnyBatch, Batches, length_buckets
from posttrain.data.contexts import (
    AnyPrompt,
    LearnedTurns,
    prompt_keys,
    prompts_of,
    rejected_prompts_of,
)
from posttrain.data.pair_facts import PairFacts
from posttrain.data.pairs import PairTable
from posttrain.data.rows import TokenRow, check_answers, encode_rows
from posttrain.learning.maths.intervals import bounded_mean_interval
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.early_stop import hold_out
from posttrain.learning.training.lengths import limit_of_rows, room_of
from posttrain.learning.training.packing import prepare_packing
from posttrain.learning.training.supervised_objective import Gather, Loss, SupervisedObjective
from posttrain.learning.training.token_batches import check_fit
from posttrain.stage.context import StageContext
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy

Collate = Callable[[Sequence[int], bool], Callable[[Sequence[int]], AnyBatch]]

_TOKENS = "_tokens"

_UNREAD = {"step_start": 0}
"""Columns that no loss reads yet, with the only value that each may have until one does."""

_FACTS: Mapping[str, tuple[str, Callable[[float], bool]]] = {
    "weight": ("above 0 and finite", lambda value: 0 < value < math.inf),
    "label_prob": ("from 0 to 1", lambda value: 0 <= value <= 1),
}
"""Columns of numbers that losses read, with what each may be."""


@dataclass(frozen=True)
class PairRows:
    """Token rows of pairs by side: chosen, rejected, and perhaps one more.

    `kept` are the places of the pairs in the frame they came from. `facts` are None where every
    pair counts 1 and is sure.
    """

    sides: Sequence[Sequence[TokenRow]]
    prompts: Sequence[AnyPrompt]
    kept: Sequence[int]
    pad: int
    facts: PairFacts | None = None

    def objective(
        self,
        loss: Loss[AnyBatch],
        collate: Collate[AnyBatch],
        *,
        config: TrainingConfig,
        seed: int,
        digests: Mapping[str, str] | None = None,
        gather: Gather[AnyBatch] | None = None,
        loss_at: Callable[[Any], Loss[AnyBatch]] | None = None,
    ) -> SupervisedObjective[AnyBatch]:
        """Plan every step over the pairs; units are pairs.

        Args:
            loss: Of a micro-batch.
            collate: ``collate(indices, packed)`` gives a function from places among these pairs to
                a micro-batch of them.
            config: Budgets, passes, early stop.
            seed: Of the order, and of what is held out for the early stop.
            digests: Inputs beside the pairs, by name.
            gather: Completes a step's parts by what depends on all of them.
            loss_at: Gives the loss by a step's config, where numbers of it may change.

        Returns:
            The objective.

        """
        taught, held = hold_out(prompt_keys(self.prompts), config.learner.early_stop, seed=seed)
        packed = config.learner.packing
        lengths = [self.length(index, packed=packed) for index in taught]
        heldout = None
        if held:
            once = [self.length(index, packed=False) for index in held]
            steps = length_buckets(range(len(held)), once, config.batch_tokens)
            heldout = Batches(steps, once, collate(held, False))
        return SupervisedObjective(
            batches=Batches(
                config.plan(lengths, seed=seed),
                lengths,
                collate(taught, packed),
                config.micro_batch_tokens,
                packed,
            ),
            loss=loss,
            heldout=heldout,
            digests={"pairs": self.table().digest, **(digests or {})},
            gather=gather,
            loss_at=loss_at,
        )

    def table(
        self,
        part: Sequence[int] | None = None,
        *,
        sides: Sequence[int] | None = None,
        packed: bool = False,
    ) -> PairTable:
        """Make a table of pairs, ready to be cut into batches.

        Args:
            part: Indices of the pairs; None for all.
            sides: Which sides, 0 the chosen and 1 the rejected; None for all.
            packed: True where batches are packed.

        Returns:
            The table.

        """
        rows = range(len(self.prompts)) if part is None else part
        chosen = range(len(self.sides)) if sides is None else sides
        return PairTable(
            *([self.sides[side][row] for row in rows] for side in chosen),
            pad=self.pad,
            packed=packed,
            facts=self.facts and self.facts.take(rows),
        )

    def length(self, index: int, *, packed: bool) -> int:
        """Count the tokens that a pair takes in a batch.

        Args:
            index: Of the pair.
            packed: False where both sides are padded to the longer one.

        Returns:
            Tokens of both sides.

        """
        lengths = [len(side[index].ids) for side in self.sides[:2]]
        # Both sides of a pair are padded to the longer one.
        return sum(lengths) if packed else 2 * max(lengths)


def encode_pairs(
    policy: "Policy",
    pairs: pl.DataFrame,
    *,
    config: TrainingConfig,
    context: StageContext,
    where: str,
    extra: str | None = None,
    turns: LearnedTurns = "last",
) -> PairRows:
    """Turn pairs into token ids, and leave out those that do not fit into `max_length`.

    Args:
        policy: Its tokenizer and chat template are used.
        pairs: PAIRS. A side whose tokens came `with_tokens` is those tokens.
        config: Most tokens of a row.
        context: Of the stage; what was left out is noted.
        where: Section of the recipe, for errors.
        extra: A column of further completions of the same prompts; None where there is none.
        turns: What of an episode is compared: its last answer, or all that the assistant said.

    Returns:
        Rows of each side, and which pairs were kept.

    Raises:
        UserError: No pair fits, what is there could not be learned from, a weight or the
            probability of a label is none, or pairs have a start that no loss reads.

    """
    _refuse_unread(pairs, where)
    prompts, theirs = prompts_of(pairs), rejected_prompts_of(pairs)
    sides = []
    for column in ("chosen", "rejected", *([extra] if extra else [])):
        asked, texts = theirs if column == "rejected" else prompts, pairs[column].to_list()
        check_answers(policy.tokenizer, asked, texts)
        rows = encode_rows(policy.tokenizer, asked, texts, allow_empty=True, turns=turns)
        sides.append(_as_drawn(rows, pairs, column))
    longest = [max(len(row.ids) for row in rows) for rows in zip(*sides, strict=True)]
    limit = limit_of_rows(
        config.max_length, longest, pairs["source"].to_list(), room=room_of(policy.model)
    )
    limit.refuse_context(longest, most=config.most_left_out, what="pairs", where=where)
    kept = [index for index, length in enumerate(longest) if length <= limit.tokens]
    if not kept:
        raise UserError(f"{where}: no pair fits into max_length {limit.tokens}; raise it")
    if len(kept) < len(pairs):
        limit.tell(context.note)
        chosen = config.model_copy(update={"max_length": limit.tokens})
        chosen.refuse_leaving_out(longest, what="pairs", where=where)
        context.note(f"left out {len(pairs) - len(kept)} pairs over {limit.tokens} tokens")
    encoded = PairRows(
        sides=[[side[index] for index in kept] for side in sides],
        prompts=[prompts[index] for index in kept],
        kept=kept,
        pad=int(policy.tokenizer.pad_token_id),
        facts=_facts(pairs, kept, where),
    )
    check_fit(policy, [row for side in encoded.sides for row in side])
    if config.learner.packing:
        prepare_packing(policy.model, config.learner.attention)
    return encoded


def _facts(pairs: pl.DataFrame, kept: Sequence[int], where: str) -> PairFacts | None:
    """Weights and label probabilities of the pairs that were kept; None where each is 1."""
    found = []
    for name, (lawful, holds) in _FACTS.items():
        values = pairs[name].to_list() if name in pairs.columns else [1.0] * len(pairs)
        for value in values:
            if value is None or not holds(value):
                raise UserError(
                    f"{where}: there are pairs with {name} {value}, which must be {lawful};"
                    " correct it, or leave these pairs out"
                )
        found.append(torch.tensor([values[place] for place in kept]))
    weight_B, label_prob_B = found
    plain = bool((weight_B == 1).all() and (label_prob_B == 1).all())
    return None if plain else PairFacts(weight_B, label_prob_B)


def _refuse_unread(pairs: pl.DataFrame, where: str) -> None:
    """Refuse values that would be passed over in silence."""
    for name, only in _UNREAD.items():
        if name not in pairs.columns:
            continue
        others = pairs[name].filter(pairs[name] != only)
        if len(others):
            raise UserError(
                f"{where}: there are pairs with {name} {others[0]}, but no loss reads it;"
                f" set {name} to {only} in all pairs"
            )


def with_tokens(pairs: pl.DataFrame, side: str, tokens: Sequence[Sequence[int]]) -> pl.DataFrame:
    """Attach the tokens that were drawn for the completions of one side.

    What was cut off has no end token then, and what was spelled in an odd way stays as it was.

    Args:
        pairs: PAIRS.
        side: Column of the completions, `chosen` or `rejected`.
        tokens: Token ids of each, in the order of the rows.

    Returns:
        The pairs with one more column.

    """
    column = pl.Series(f"{side}{_TOKENS}", [list(each) for each in tokens], dtype=pl.List(pl.Int64))
    return pairs.with_columns(column)


def _as_drawn(rows: list[TokenRow], pairs: pl.DataFrame, side: str) -> list[TokenRow]:
    if f"{side}{_TOKENS}" not in pairs.columns:
        return rows
    drawn = pairs[f"{side}{_TOKENS}"].to_list()
    return [
        TokenRow((*row.ids[: row.start], *ids), start=row.start)
        for row, ids in zip(rows, drawn, strict=True)
    ]


def accuracy_interval(gap_B: Tensor, problem_ids: pl.Series) -> dict[str, float]:
    """Compute the share of pairs in the right order, with its 95 % interval.

    A tie counts half. Pairs of one problem go together, as they are not independent; of few
    problems the interval is Student's.

    Args:
        gap_B: Score of the chosen minus that of the rejected.
        problem_ids: The problem of each pair.

    Returns:
        ``accuracy``, ``accuracy_low`` and ``accuracy_high``, in [0, 1].

    """
    right_B = (torch.sign(gap_B.double()) + 1) / 2
    problems_B = torch.tensor(problem_ids.rank("dense").to_list())
    interval = bounded_mean_interval(right_B, problems_B, few=True)
    return {
        "accuracy": float(interval.estimate),
        "accuracy_low": float(interval.low),
        "accuracy_high": float(interval.high),
    }
