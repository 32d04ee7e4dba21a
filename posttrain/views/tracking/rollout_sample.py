"""A few rollouts of a table, for a view that cannot hold all of them."""

from pathlib import Path
from typing import Any

STEPS, PER_STEP = 8, 3
"""At most so many steps, the first and the last among them, and so many rollouts of each."""
_COLUMNS = ("id", "problem_id", "source", "step", "role", "text", "reward", "solved", "components")
_LONGEST_TEXT = 20_000


def sample_rollouts(rollouts: Path, problems: Path | None) -> list[dict[str, Any]]:
    """Take rollouts from steps at even distances; their ids, which are hashes, decide which.

    Args:
        rollouts: The parquet file.
        problems: That of the problems, for the text of their prompts, where it is there.

    Returns:
        Rows in the order of their steps: what is known of each in words and figures, without
        tokens. Texts are cut at 20,000 characters.

    """
    import polars as pl

    table = pl.scan_parquet(rollouts)
    known = table.collect_schema().names()
    steps = table.select(pl.col("step").unique().sort()).collect()["step"].to_list()
    chosen = (
        table.filter(pl.col("step").is_in(evenly(steps, STEPS)))
        .select(name for name in _COLUMNS if name in known)
        .sort("step", "id")
        .group_by("step", maintain_order=True)
        .head(PER_STEP)
        .collect()
    )
    if problems is not None:
        asked = pl.scan_parquet(problems).select(pl.col("id").alias("problem_id"), "prompt")
        wanted = asked.filter(pl.col("problem_id").is_in(chosen["problem_id"].to_list()))
        found = wanted.unique("problem_id", keep="first").collect()
        chosen = chosen.join(found, on="problem_id", how="left", maintain_order="left")
    texts = [name for name in ("text", "prompt") if name in chosen.columns]
    return chosen.with_columns(pl.col(texts).str.slice(0, _LONGEST_TEXT)).to_dicts()


def evenly(values: list[int], count: int) -> list[int]:
    """At most `count` of some sorted values at even distances, the first and the last among them.

    >>> evenly([1, 2, 3, 4, 5, 6, 7, 8, 9], 3)
    [1, 5, 9]
    >>> evenly([4, 7], 3)
    [4, 7]
    """
    if len(values) <= count:
        return values
    return [values[round(each * (len(values) - 1) / (count - 1))] for each in range(count)]
