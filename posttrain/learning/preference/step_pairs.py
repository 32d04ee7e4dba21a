"""Pairs that compare steps: what is before a step bears no loss, and a loss may read its value."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
import torch
from torch import Tensor

from posttrain.data.pair_facts import PairFacts
from posttrain.data.rows import TokenRow
from posttrain.data.templates import encode_completions
from posttrain.learning.training.pairwise import PairRows, encode_pairs
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


def encode_steps(policy: "Policy", pairs: pl.DataFrame, **options: Any) -> PairRows:
    r"""Encode pairs as `encode_pairs` does, and leave of those that compare steps these alone.

    The text of such a pair goes up to the end of the step; one that ends with a line break goes on
    behind it, so that no end is learned. A token that reaches over the border belongs to the step.

    Args:
        policy: Its tokenizer and chat template are used.
        pairs: PAIRS; `step_start` is 0 where whole answers are compared.
        **options: Of `encode_pairs`.

    Returns:
        Rows of each side, with the difference of scores where the loss reads it.

    Raises:
        UserError: As `encode_pairs` says; or the loss compares with other answers, which no step
            is, or reads a score that is missing.

    """
    algorithm, where = options["config"].algorithm, options["where"]
    starts = pairs["step_start"].to_list()
    if any(starts) and algorithm.needs_mismatched:
        raise UserError(
            f"{where}: pairs compare steps, and the loss {algorithm.loss_name} compares with"
            " answers to other problems; take another loss, or a builder of whole answers"
        )
    rows = encode_pairs(policy, pairs.with_columns(step_start=pl.lit(0, pl.Int32)), **options)
    if any(starts):
        sides = [
            _steps(policy, side, [pairs[column][place] for place in rows.kept], starts, rows.kept)
            for side, column in zip(rows.sides, ("chosen", "rejected"), strict=False)
        ]
        rows = replace(rows, sides=[*sides, *rows.sides[2:]])
    if not algorithm.needs_scores:
        return rows
    gap_B = _gaps(pairs, where)[list(rows.kept)]
    one_B = torch.ones(len(rows.kept))
    facts = rows.facts or PairFacts(one_B, one_B)
    return replace(rows, facts=replace(facts, gap_B=gap_B))


def _steps(
    policy: "Policy",
    rows: Sequence[TokenRow],
    texts: Sequence[str],
    starts: Sequence[int],
    kept: Sequence[int],
) -> list[TokenRow]:
    found = []
    for row, text, start in zip(rows, texts, [starts[place] for place in kept], strict=True):
        if not start:
            found.append(row)
            continue
        ids = row.ids[:-1] if text.endswith("\n") else row.ids
        before = encode_completions(policy.tokenizer, [text[: start - 1]], allow_empty=True)[0][:-1]
        same = zip(before, ids[row.start :], strict=False)
        alike = next((n for n, (one, other) in enumerate(same) if one != other), len(before))
        begin = min(row.start + alike, len(ids) - 1)
        found.append(TokenRow(ids, begin, row.silent))
    return found


def _gaps(pairs: pl.DataFrame, where: str) -> Tensor:
    """Score of each chosen completion less that of the rejected one, ``[R]``."""
    both = pairs.select("chosen_score", "rejected_score")
    if sum(both.null_count().row(0)):
        raise UserError(
            f"{where}: the loss reads the scores of both sides, and there are pairs without; take"
            " another loss, or pairs that are built of scored samples"
        )
    gaps = both["chosen_score"] - both["rejected_score"]
    return torch.tensor(gaps.to_list(), dtype=torch.float32)
