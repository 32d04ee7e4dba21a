"""Metrics of a claim that are read off the samples of a policy, beside those of its report."""

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from tasks.verdict.confidence import confidence_errors


def distinct_right(judged: pl.DataFrame) -> float:
    """Count the different right texts of a problem, in the mean over problems.

    Args:
        judged: Samples that could be judged, with `problem_id`, `text` and `verified`.

    Returns:
        How many ways to solve a problem the policy was seen to know; 0 of one that it never solves.

    """
    right = pl.col("text").filter(pl.col("verified")).n_unique()
    counts = judged.group_by("problem_id").agg(right.alias("ways"))
    return float(counts["ways"].mean() or 0.0)  # type: ignore[arg-type]


def _of_confidence(name: str, judged: pl.DataFrame) -> float:
    return confidence_errors(judged)[name]


OF_SAMPLES: Mapping[str, Callable[[pl.DataFrame], float]] = {
    "distinct_right": distinct_right,
    **{name: partial(_of_confidence, name) for name in ("brier", "ece", "states_confidence")},
}
"""By name, as a claim's decision says it."""
