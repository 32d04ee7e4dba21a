"""How good a reward model is on pairs of problems that it has not seen."""

import math
from typing import Any

import polars as pl
import torch

from posttrain.data.contexts import prompts_of, rejected_prompts_of
from posttrain.learning.maths.calibration import (
    brier_score,
    expected_calibration_error,
    reliability_table,
)
from posttrain.learning.models.pair_model import PairModel
from posttrain.learning.models.reward_head import RewardModel
from posttrain.learning.training.pairwise import accuracy_interval

NUM_BINS = 10


def grade(reward_model: RewardModel, pairs: pl.DataFrame) -> dict[str, Any]:
    """The report: accuracy with its interval, AUROC, calibration, and what length alone gives."""
    chosen = reward_model.score(prompts_of(pairs), pairs["chosen"].to_list())
    rejected = reward_model.score(rejected_prompts_of(pairs), pairs["rejected"].to_list())
    graded = pairs.with_columns(
        pl.Series("chosen_reward", chosen), pl.Series("rejected_reward", rejected)
    )
    gap_B = torch.tensor(chosen, dtype=torch.float64) - torch.tensor(rejected, dtype=torch.float64)
    return {**_of_gaps(gap_B, pairs), "auroc": _auroc(graded)}


def grade_pair_model(model: PairModel, pairs: pl.DataFrame) -> dict[str, Any]:
    """The same of a model of both answers, but for the AUROC: it scores no answer by itself."""
    sides = [pairs[side].to_list() for side in ("chosen", "rejected")]
    logits_B = torch.tensor(model.logits(prompts_of(pairs), *sides), dtype=torch.float64)
    return _of_gaps(logits_B, pairs)


def _of_gaps(gap_B: torch.Tensor, pairs: pl.DataFrame) -> dict[str, Any]:
    return {
        **accuracy_interval(gap_B, pairs["problem_id"]),
        **_calibration(gap_B),
        "length_accuracy": _length_accuracy(pairs),
        "by_source": _by_source(pairs.with_columns(gap=pl.Series(gap_B.tolist()))),
        "num_pairs": len(pairs),
        "num_problems": pairs["problem_id"].n_unique(),
    }


def _calibration(gap_B: torch.Tensor) -> dict[str, Any]:
    """Of ``sigmoid(gap)`` as the chance that the first is better, each pair both ways round."""
    probability_N = torch.sigmoid(torch.cat([gap_B, -gap_B]))
    outcome_N = torch.cat([torch.ones_like(gap_B), torch.zeros_like(gap_B)])
    count, claimed, happened = reliability_table(probability_N, outcome_N, num_bins=NUM_BINS)
    return {
        "ece": float(expected_calibration_error(probability_N, outcome_N, num_bins=NUM_BINS)),
        "brier": float(brier_score(probability_N, outcome_N)),
        "reliability": [
            {"count": int(n), "claimed": p, "happened": y}
            for n, p, y in zip(count.tolist(), claimed.tolist(), happened.tolist(), strict=True)
        ],
    }


def _auroc(graded: pl.DataFrame) -> float:
    """Across problems, over distinct completions: do verified ones score above refuted ones?"""
    texts = pl.concat(
        graded.select("problem_id", pl.col(side).alias("text"), reward=pl.col(f"{side}_reward"))
        .with_columns(verified=pl.lit(side == "chosen"))
        .unique(["problem_id", "text"], keep="first", maintain_order=True)
        for side in ("chosen", "rejected")
    )
    return auroc(texts["reward"], texts["verified"])


def auroc(scores: pl.Series, positive: pl.Series) -> float:
    """Compute the chance that a positive item scores above a negative one; a tie is half.

    The Mann-Whitney statistic over the number of pairs. Only the order of the scores matters.

    Args:
        scores: One number per item.
        positive: True for the items that should score high; as long as `scores`.

    Returns:
        A number from 0 to 1; NaN where one of the two classes is empty, or a score is no number.

    """
    from scipy.stats import mannwhitneyu

    above, below = scores.filter(positive).to_numpy(), scores.filter(~positive).to_numpy()
    if not len(above) or not len(below) or scores.is_nan().any():
        # Ranked, what is no number would count as the greatest score.
        return math.nan
    # Its p-value is not asked for; the asymptotic one costs nothing.
    wins = float(mannwhitneyu(above, below, method="asymptotic").statistic)
    return wins / (above.size * below.size)


def _length_accuracy(pairs: pl.DataFrame) -> float:
    """Accuracy of the better of "longer wins" and "shorter wins": what no reading would give."""
    gap = pairs["chosen"].str.len_chars().cast(pl.Int64) - pairs["rejected"].str.len_chars()
    longer = float(((gap.sign() + 1) / 2).mean())  # type: ignore[arg-type]
    return max(longer, 1.0 - longer)


def _by_source(graded: pl.DataFrame) -> dict[str, dict[str, float]]:
    right = (pl.col("gap").sign() + 1) / 2
    rows = graded.group_by("source").agg(
        pl.len().alias("num_pairs"), right.mean().alias("accuracy")
    )
    return {
        source: {"num_pairs": count, "accuracy": accuracy}
        for source, count, accuracy in rows.sort("source").rows()
    }
