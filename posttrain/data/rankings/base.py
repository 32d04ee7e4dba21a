"""The slot of the rankings: what a part of it implements, and what it is given."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    import polars as pl

AccuracyCurves = Mapping[str, Sequence[float]]
"""Problem -> its accuracy at each visit of a run, in the order of the steps."""


class Ranking(Part):
    """Scores problems by what became of them in an earlier run of RL; the highest are chosen."""

    def scores(self, curves: AccuracyCurves) -> Mapping[str, float]:
        """Score every problem.

        Args:
            curves: Of each problem the share of its rollouts that were right, visit by visit; at
                least `least_visits` of `tasks.select` each.

        Returns:
            A finite number for each of these problems; the higher, the sooner it is chosen.

        """
        raise NotImplementedError


def accuracy_curves(rollouts: "pl.DataFrame") -> dict[str, list[float]]:
    """Compute how often a run solved each problem, visit by visit.

    A visit is a step in which the problem was drawn: where a run passes through its problems over
    and over, the k-th visit is that of the k-th epoch. What others wrote and what could not be
    judged counts in no visit.

    Args:
        rollouts: A ROLLOUTS table of one run.

    Returns:
        Accuracies by the problem's id, in the order of the steps.

    """
    import polars as pl

    # An episode that was cut into segments is one rollout.
    whole = ["problem_id", "step", "group", "episode", "role"]
    visits = (
        rollouts.filter(pl.col("origin") == "policy", pl.col("solved").is_not_null())
        .unique(whole, keep="first", maintain_order=True)
        .group_by("problem_id", "step", maintain_order=True)
        .agg(pl.col("solved").mean().alias("accuracy"))
        .sort("step", maintain_order=True)
        .group_by("problem_id", maintain_order=True)
        .agg("accuracy")
    )
    return dict(visits.iter_rows())
