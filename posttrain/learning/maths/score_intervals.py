"""The interval of a benchmark's mean score, whatever its scores are."""

import math
from collections.abc import Sequence

import torch

from posttrain.learning.maths.intervals import clustered_mean_interval, wilson_interval


def score_interval(
    scores: Sequence[float], documents: Sequence[int], *, mean: float
) -> tuple[float, float] | None:
    """Compute a 95% interval of a mean over documents.

    Wilson's where each document was scored once, by 0 or 1: it holds near 0 and 1, and for few.
    Else Student's over documents, of which all scores go together.

    Args:
        scores: Of every answer.
        documents: Number of the document of each.
        mean: As it was told: of another way to put scores together nothing is known here.

    Returns:
        Both ends; None where the mean of the scores is another one, or nothing says how they vary.

    """
    if not scores or not math.isclose(math.fsum(scores) / len(scores), mean, abs_tol=1e-9):
        return None
    if set(scores) <= {0.0, 1.0} and len(set(documents)) == len(documents):
        rate = wilson_interval(torch.tensor([sum(scores)]), torch.tensor([len(scores)]))
        return float(rate.low[0]), float(rate.high[0])
    values, clusters = torch.tensor(scores, dtype=torch.float64), torch.tensor(documents)
    found = clustered_mean_interval(values, clusters, few=True)
    return (float(found.low), float(found.high)) if found.low.isfinite() else None
