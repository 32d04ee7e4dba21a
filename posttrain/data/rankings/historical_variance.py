"""Problems whose accuracy varied most over a run."""

from collections.abc import Mapping
from statistics import pvariance
from typing import Literal

from posttrain.data.rankings.base import AccuracyCurves, Ranking


class HistoricalVariance(Ranking):
    """Take the problems whose accuracy varied most over an earlier run.

    v = 1/E Σ_e (s_e - mean s)², with s_e the accuracy of the problem in its e-th of E visits. A
    problem that is always or never solved has 0, one that was learned on the way, or lost, most.
    """

    SOURCE = (
        "1-shot RLVR, arXiv 2504.20571, section 2 (historical variance score);"
        " ypwang61/One-Shot-RLVR at fa06774, data/data_selection.py (acc_score: the standard"
        " deviation, of population, which orders alike)"
    )

    kind: Literal["historical_variance"] = "historical_variance"

    def scores(self, curves: AccuracyCurves) -> Mapping[str, float]:
        """Compute the variance of each curve; see `Ranking.scores`."""
        return {name: pvariance(values) for name, values in curves.items()}
