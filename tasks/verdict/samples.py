"""Metrics of a claim that are read off the samples of a policy, beside those of its report."""

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl
import torch

from posttrain.learning.maths.calibration import brier_score, expected_calibration_error
from posttrain.learning.rewards.components.brier import BrierComponent


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


def confidence_errors(judged: pl.DataFrame) -> dict[str, float]:
    """Compute what stated confidences are off by, over the answers of one policy.

    A text without a confidence counts as one that was certain of what is not so, so that nothing
    is won by stating none.

    Args:
        judged: Completions that could be judged, with `text` and `verified`.

    Returns:
        `brier`, the mean squared error; `ece`, the expected calibration error in ten bins; and
        `states_confidence`, the share of texts that state one.

    """
    reads, texts = BrierComponent(), judged["text"].to_list()
    right = [bool(each) for each in judged["verified"].to_list()]
    stated = [reads.confidence(text) for text in texts]
    claimed_N = torch.tensor(
        [float(not solved) if q is None else q for q, solved in zip(stated, right, strict=True)],
        dtype=torch.float64,
    )
    right_N = torch.tensor(right, dtype=torch.float64)
    return {
        "brier": float(brier_score(claimed_N, right_N)),
        "ece": float(expected_calibration_error(claimed_N, right_N)),
        "states_confidence": sum(q is not None for q in stated) / max(len(stated), 1),
    }


def _of_confidence(name: str, judged: pl.DataFrame) -> float:
    return confidence_errors(judged)[name]


OF_SAMPLES: Mapping[str, Callable[[pl.DataFrame], float]] = {
    "distinct_right": distinct_right,
    **{name: partial(_of_confidence, name) for name in ("brier", "ece", "states_confidence")},
}
"""By name, as a claim's decision says it."""
