"""Rows of a table as a rehearsal learns from them: tokens, and what is known of each."""

from pathlib import Path

import polars as pl

from posttrain.data.contexts import prompts_of
from posttrain.data.rows import TokenRow, encode_rows
from posttrain.data.schemas import COMPLETIONS
from posttrain.data.tables import read_table
from posttrain.learning.models.load import Policy
from posttrain.learning.rl.batch import TrainSample
from posttrain.learning.rl.rehearsals.base import Rehearsal, RehearsalRow
from posttrain.learning.training.lengths import room_of


def read_rehearsed(
    path: Path, part: Rehearsal, policy: Policy
) -> tuple[list[RehearsalRow], list[TrainSample]]:
    """Read the rows of a table that a rehearsal may learn from.

    Args:
        path: COMPLETIONS.
        part: The rehearsal, which admits some of them.
        policy: As RL begins with it; rows that it has no room for are left out.

    Returns:
        What is known of the rows, and their tokens; of these no log-probability is known.

    """
    table = read_table(path, COMPLETIONS)
    rate = pl.col("verified").cast(pl.Float64).mean().over("problem_id").fill_null(1.0)
    table = table.with_columns(rate.alias("solve_rate"))
    table = table.filter(pl.col("verified").fill_null(value=True))
    told = [RehearsalRow(*row) for row in table.select("problem_id", "solve_rate").iter_rows()]
    encoded = encode_rows(
        policy.tokenizer,
        prompts_of(table),
        table["text"].to_list(),
        allow_empty=True,
        turns="assistant",
    )
    room, samples = room_of(policy.model), [_sample(row) for row in encoded]
    kept = [
        (row, sample)
        for row, sample in zip(told, samples, strict=True)
        if sample.num_tokens <= room and part.admits(row)
    ]
    return [row for row, _ in kept], [sample for _, sample in kept]


def _sample(row: TokenRow) -> TrainSample:
    """A row without anything that is known of it."""
    silent = {place for begin, end in row.silent for place in range(begin, end)}
    drawn = tuple(at >= row.start and at not in silent for at in range(len(row.ids)))
    return TrainSample(
        token_ids=tuple(row.ids),
        drawn=drawn,
        logprobs=(0.0,) * sum(drawn),
        policy_version=0,
        advantages=(0.0,),
    )
