"""The weighted sum, and what other combinations need of it."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.components.base import Range
from posttrain.stage.schedule import Weight


class SumCombine(Combine):
    """Weighted sum of the components; None where one that has a weight could not be judged.

    `R = Σ_c w_c r_c`.

    Source: own.
    """

    kind: Literal["sum"] = "sum"
    weights: Mapping[str, Weight] = Field(default_factory=dict)
    """Component -> weight, a number or a schedule of the step; 1 for those that are not here."""

    def combine(
        self,
        scores: Mapping[str, Sequence[float | None]],
        *,
        step: int,  # noqa: ARG002 - its weights have been put at the step
        state: dict[str, Any],  # noqa: ARG002 - nothing is remembered
    ) -> Sequence[float | None]:
        """Add them up; see `Combine.combine`."""
        return [total(weighed(values, self.weights)) for values in by_answer(scores)]

    def names(self) -> Sequence[str]:
        """Return the components that have a weight."""
        return tuple(self.weights)

    def by_token(self, names: Collection[str]) -> Mapping[str, float] | None:
        """Return the components with a weight; see `Combine.by_token`."""
        weights = {name: self.weights.get(name, 1.0) for name in names}
        return {name: weight for name, weight in weights.items() if weight}

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Add the ends up; see `Combine.bounds`."""
        return range_of_sum(ranges, self.weights)


def total(values: Iterable[float | None]) -> float | None:
    """Add numbers up, in any order to the same sum; None where one is not known."""
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    return math.fsum(known)


def weighed(
    values: Mapping[str, float | None], weights: Mapping[str, float]
) -> Iterable[float | None]:
    """Weigh the scores of one answer.

    Args:
        values: Component -> score.
        weights: Component -> weight; 1 for those that are not here.

    Yields:
        Weight x score, None of what was not judged; nothing where the weight is 0.

    """
    for name, value in values.items():
        if weight := weights.get(name, 1.0):
            yield None if value is None else weight * value


def by_answer(scores: Mapping[str, Sequence[float | None]]) -> list[dict[str, float | None]]:
    """Turn columns into one mapping of scores per answer."""
    return [dict(zip(scores, row, strict=True)) for row in zip(*scores.values(), strict=True)]


def range_of_sum(ranges: Mapping[str, Range], weights: Mapping[str, float]) -> Range:
    """Find the ends of a weighted sum.

    Args:
        ranges: Component -> its least and greatest score.
        weights: Component -> weight; 1 for those that are not here.

    Returns:
        The least and the greatest sum.

    """
    ends = [_scaled(each, weights.get(name, 1.0)) for name, each in ranges.items()]
    return math.fsum(low for low, _ in ends), math.fsum(high for _, high in ends)


def _scaled(ends: Range, factor: float) -> Range:
    """The ends of a number within a range times a factor."""
    if not factor:
        return 0.0, 0.0
    low, high = sorted(factor * end for end in ends)
    return low, high
