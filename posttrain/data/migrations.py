"""Formats of tables: how one that an older posttrain wrote is read as one of today.

A table says its schema and its format in the parquet file's metadata; one that says no format is of
format 1, as those of 0.1 are. To change a schema, raise its number in `FORMATS`, keep the old
schema here, and add the function that turns a frame of the old format into one of the next. Tables
are never rewritten: they are migrated as they are read, and their rows keep their ids.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from posttrain.data.schemas import COMPLETIONS, PAIRS, PROBLEMS, ROLLOUTS

FORMATS: Mapping[str, int] = {"problems": 3, "completions": 2, "pairs": 3, "rollouts": 6}
"""Present format of each type of table; 1 for those that are not here."""

SCHEMA_KEY = "posttrain.schema"
FORMAT_KEY = "posttrain.format"
"""Keys of the parquet file's metadata."""


@dataclass(frozen=True)
class Migration:
    """How a table of one format becomes one of the next."""

    schema: pl.Schema
    """Of the old format."""
    migrate: Callable[[pl.DataFrame], pl.DataFrame]


def _without(schema: pl.Schema, *names: str) -> pl.Schema:
    return pl.Schema({name: kind for name, kind in schema.items() if name not in names})


_ROLLOUTS_5 = _without(ROLLOUTS, "entropies")
_ROLLOUTS_4 = _without(_ROLLOUTS_5, "facts", "shared")
_ROLLOUTS_3 = _without(_ROLLOUTS_4, "turns", "peers")
_ROLLOUTS_2 = _without(_ROLLOUTS_3, "token_rewards")

_ROLLOUTS_1: dict[str, Any] = {
    "id": pl.String,
    "parents": pl.List(pl.String),
    "problem_id": pl.String,
    "step": pl.Int32,
    "source": pl.String,
    "prompt_ids": pl.List(pl.Int32),
    "completion_ids": pl.List(pl.Int32),
    "logprobs": pl.List(pl.Float32),
    "finish_reason": pl.String,
    "text": pl.String,
    "reward": pl.Float64,
    "reward_components": pl.String,
    "advantage": pl.Float64,
    "policy_version": pl.Int32,
    "group": pl.Int32,
    "trained": pl.Boolean,
}


def migrate_rollouts_1(frame: pl.DataFrame) -> pl.DataFrame:
    """Turn the rollouts of 0.1, a prompt and a completion each, into segments of one turn.

    Its `advantage` is left out: it was computed before the rollouts were learned from, and is not
    what they were learned with.
    """
    begin, end = pl.col("prompt_ids").list.len().cast(pl.Int32), pl.col("token_ids").list.len()
    score = pl.col("reward_components").str.json_path_match("$.verifier").cast(pl.Float64)
    judged = pl.col("reward_components") != '{"verifier": null}'
    index = pl.int_range(pl.len()).over("step", "group").cast(pl.String)
    zero = pl.lit(0, pl.Int32)
    migrated = (
        frame.with_columns(token_ids=pl.concat_list("prompt_ids", "completion_ids"))
        .with_columns(
            episode=pl.concat_str(pl.col("problem_id"), pl.lit("/"), index),
            segment=zero,
            role=pl.lit("policy"),
            origin=pl.lit("policy"),
            spans=pl.concat_list(
                _span(zero, begin, drawn=False), _span(begin, end.cast(pl.Int32), drawn=True)
            ),
            versions=pl.concat_list("policy_version"),
            end=pl.col("finish_reason").replace_strict({"stop": "over", "length": "tokens"}),
            components=pl.concat_list(
                pl.struct(pl.lit("verifier").alias("name"), score.alias("value"))
            ),
            reward=pl.when(judged).then("reward"),
            solved=pl.when(judged).then(pl.col("reward") >= 1),
            advantages=pl.lit([], pl.List(pl.Float32)),
        )
        .select(_ROLLOUTS_2.names())
    )
    return migrated.cast(_ROLLOUTS_2)


def _adding(schema: pl.Schema, **values: object) -> Migration:
    """Give the columns that an older format did not have one value in every row."""
    old = _without(schema, *values)
    added = {name: pl.lit(value, schema[name]) for name, value in values.items()}
    return Migration(old, lambda frame: frame.with_columns(**added).select(schema.names()))


MIGRATIONS: Mapping[tuple[str, int], Migration] = {
    # Nothing says where the problems of 0.1 stood.
    ("problems", 1): _adding(_without(PROBLEMS, "context"), origin_file="", origin_line=0),
    ("problems", 2): _adding(PROBLEMS, context=""),
    ("completions", 1): _adding(COMPLETIONS, weight=1.0, context=""),
    # Nobody knows the scores behind the pairs of 0.1, and each is as sure as any other.
    ("pairs", 1): _adding(
        _without(PAIRS, "context"),
        chosen_score=None,
        rejected_score=None,
        label_prob=1.0,
        rationale="",
        step_start=0,
        weight=1.0,
    ),
    ("pairs", 2): _adding(PAIRS, context=""),
    ("rollouts", 1): Migration(pl.Schema(_ROLLOUTS_1), migrate_rollouts_1),
    ("rollouts", 2): _adding(_ROLLOUTS_3, token_rewards=[]),
    ("rollouts", 3): _adding(_ROLLOUTS_4, turns=[], peers=""),
    ("rollouts", 4): _adding(_ROLLOUTS_5, facts=[], shared=0),
    ("rollouts", 5): _adding(ROLLOUTS, entropies=[]),
}
"""From (type, format) to the next format."""


def _span(begin: pl.Expr, end: pl.Expr, *, drawn: bool) -> pl.Expr:
    turn = pl.lit(0, pl.Int32).alias("turn")
    return pl.struct(begin.alias("begin"), end.alias("end"), turn, pl.lit(drawn).alias("drawn"))
