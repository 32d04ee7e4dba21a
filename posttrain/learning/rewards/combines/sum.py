"""The weighted sum."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from posttrain.learning.rewards.combines.base import Combine


class SumCombine(Combine):
    """Weighted sum of the components; None where one that has a weight could not be judged."""

    kind: Literal["sum"] = "sum"
    weights: Mapping[str, float] = Field(default_factory=dict)
    """Component -> weight; 1 for those that are not here."""

    def combine(
        self,
        scores: Mapping[str, Sequence[float | None]],
        *,
        step: int,  # noqa: ARG002 - the same at all steps
        state: dict[str, Any],  # noqa: ARG002 - nothing is remembered
    ) -> Sequence[float | None]:
        """Add them up; see `Combine.combine`."""
        weights = [self.weights.get(name, 1.0) for name in scores]
        return [_sum(values, weights) for values in zip(*scores.values(), strict=True)]

    def names(self) -> Sequence[str]:
        """Return the components that have a weight."""
        return tuple(self.weights)


def _sum(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    total = 0.0
    for value, weight in zip(values, weights, strict=True):
        if not weight:
            continue
        if value is None:
            return None
        total += weight * value
    return total
