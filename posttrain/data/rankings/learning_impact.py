"""Problems that are learned as the whole set is."""

from collections.abc import Mapping
from statistics import fmean
from typing import Literal

from posttrain.data.rankings.base import AccuracyCurves, Ranking
from posttrain.stage.errors import UserError


class LearningImpact(Ranking):
    """Take the problems that were learned in an earlier run as the mean problem was.

    score = 1 - Σ_e (s_e - m_e)² / Σ_e (1 - m_e)², with s_e the accuracy of the problem at its e-th
    visit and m_e the mean over the problems; e goes as far as all of them were visited.
    """

    SOURCE = (
        "LIMR, arXiv 2502.11886, section 2.2 (learning impact measurement);"
        " ypwang61/One-Shot-RLVR at fa06774, data/data_selection.py (lim)"
    )

    kind: Literal["learning_impact"] = "learning_impact"

    def scores(self, curves: AccuracyCurves) -> Mapping[str, float]:
        """Hold each curve against the mean one; see `Ranking.scores`."""
        visits = min(map(len, curves.values()))
        mean = [fmean(values[visit] for values in curves.values()) for visit in range(visits)]
        scale = sum((1 - each) ** 2 for each in mean)
        if not scale:
            raise UserError(
                f"learning_impact: in their first {visits} visits all problems were solved every"
                " time, so nothing was learned; take rollouts of a run with harder problems"
            )
        return {
            name: 1 - sum((s - m) ** 2 for s, m in zip(values, mean, strict=False)) / scale
            for name, values in curves.items()
        }
