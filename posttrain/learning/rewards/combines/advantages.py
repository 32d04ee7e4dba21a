"""Advantages of each component by itself, then their weighted sum."""

from collections.abc import Collection, Mapping
from typing import Literal

from posttrain.learning.rewards.combines.sum import SumCombine, range_of_sum
from posttrain.learning.rewards.components.base import Range


class AdvantagesCombine(SumCombine):
    """Take the advantages of each component by themselves, and learn from their weighted sum.

    The algorithm's own advantage is estimated for one component after the other, so that with
    ``advantage: {kind: group, scale: sample}`` each is normalized within its group before they
    are added: answers that differ in their components differ in what is learned from, whatever
    their sum. GDPO then normalizes over the batch, which is the advantage's `whiten: sample`.
    The reward that is stored and shown is the weighted sum of the scores.
    """

    SOURCE = "GDPO, arXiv 2601.05242, equations 4 to 6; verl's estimator `gdpo`"

    kind: Literal["advantages"] = "advantages"  # type: ignore[assignment]

    def apart(self, names: Collection[str]) -> Mapping[str, float]:
        """Return all components with a weight; see `Combine.apart`."""
        weights = {name: self.weights.get(name, 1.0) for name in names}
        return {name: weight for name, weight in weights.items() if weight}

    def by_token(self, names: Collection[str]) -> Mapping[str, float] | None:  # noqa: ARG002
        """Return None: it compares one number of each answer; see `Combine.by_token`."""
        return None

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Add the ends up as if each component went from 0 to 1: a deviation is one unit."""
        return range_of_sum({name: _unit(each) for name, each in ranges.items()}, self.weights)


def _unit(ends: Range) -> Range:
    low, high = ends
    return (0.0, 1.0) if low < high else (min(max(low, 0.0), 1.0),) * 2
