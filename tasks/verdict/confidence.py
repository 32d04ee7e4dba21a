"""How well the confidences that answers state agree with how often they are right."""

import polars as pl
import torch

from posttrain.learning.maths.calibration import brier_score, expected_calibration_error
from posttrain.learning.rewards.components.brier import BrierComponent


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
