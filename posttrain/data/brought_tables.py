"""What somebody brings, as the tables that stages learn from; a row's parent is its line."""

from collections.abc import Sequence

import polars as pl

from posttrain.data.brought import BroughtRow
from posttrain.data.formats.forms import JudgedAnswers, TaughtAnswer
from posttrain.data.schemas import (
    IDENTITY,
    PAIRS,
    Completion,
    Problem,
    completions_table,
    row_id,
    with_row_ids,
)

GIVEN = "given"
"""Reason of a completion that counts because somebody brought it: no verifier was asked."""


def taught_table(rows: Sequence[BroughtRow[TaughtAnswer]]) -> pl.DataFrame:
    """Lay answers out as COMPLETIONS.

    Args:
        rows: What was read.

    Returns:
        COMPLETIONS in the same order. All count as accepted, with the reason `given`; a row's
        parent is where it stood, as `FILE:LINE`.

    """
    completions = [
        Completion(
            Problem(
                source=row.source,
                prompt=row.taken.prompt,
                answer="",
                difficulty=0,
                verifier="",
                origin_file=row.where.rpartition(":")[0],
                context=row.taken.context.written(),
            ),
            row.taken.answer,
            generator=f"file:{row.source}",
            score=None,
            verified=True,
            reason=GIVEN,
            weight=row.weight,
        )
        for row in rows
    ]
    parents = pl.Series("parents", [[row.where] for row in rows], dtype=pl.List(pl.String))
    return completions_table(completions).with_columns(parents)


def judged_table(rows: Sequence[BroughtRow[JudgedAnswers]]) -> pl.DataFrame:
    """Lay answers that are told apart out as PAIRS.

    Args:
        rows: What was read.

    Returns:
        PAIRS in the same order. Of an answer that was judged alone the other side is empty.

    """
    laid_out = []
    for row in rows:
        context = row.taken.context.written()
        laid_out.append(
            {
                "parents": [row.where],
                "problem_id": row_id(*filter(None, [row.source, row.taken.prompt, context])),
                "source": row.source,
                "prompt": row.taken.prompt,
                "chosen": row.taken.chosen,
                "rejected": row.taken.rejected,
                "split": row.side,
                "chosen_score": row.taken.chosen_score,
                "rejected_score": row.taken.rejected_score,
                "label_prob": 1.0,
                "rationale": "",
                "step_start": 0,
                "weight": row.weight * row.taken.weight,
                "context": context,
            }
        )
    frame = pl.DataFrame(laid_out, schema={name: PAIRS[name] for name in PAIRS if name != "id"})
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))
