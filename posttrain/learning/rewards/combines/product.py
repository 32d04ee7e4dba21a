"""A weighted sum times factors."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal

from pydantic import Field

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.sum import (
    by_answer,
    range_of_sum,
    total,
    weighed,
)
from posttrain.learning.rewards.components.base import Range
from posttrain.stage.schedule import Weight


class ProductCombine(Combine):
    """Multiply a weighted sum by factors, so that one factor of 0 takes everything.

    `R = (Σ_s w_s r_s) Π_f r_f`.
    """

    SOURCE = "CaRL, arXiv 2504.17838: route completion times penalties"

    kind: Literal["product"] = "product"
    times: list[str] = Field(default_factory=list)
    """Components that are factors; empty for all that are not in `sum`."""
    sum: Mapping[str, Weight] = Field(default_factory=dict)
    """Component -> weight of the sum that is multiplied; empty for 1."""

    def combine(
        self,
        scores: Mapping[str, Sequence[float | None]],
        *,
        step: int,  # noqa: ARG002 - its weights have been put at the step
        state: dict[str, Any],  # noqa: ARG002 - nothing is remembered
    ) -> Sequence[float | None]:
        """Multiply; see `Combine.combine`."""
        return [self._paid(values) for values in by_answer(scores)]

    def names(self) -> Sequence[str]:
        """Return the factors, and what has a weight."""
        return (*self.times, *self.sum)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Return the ends over all corners: a product is least and greatest at corners."""
        ends = [ranges[name] for name in self._factors(ranges)]
        if self.sum:
            ends.append(range_of_sum({name: ranges[name] for name in self.sum}, self.sum))
        corners = [_times(corner) for corner in product(*ends)]
        return min(corners), max(corners)

    def _factors(self, names: Mapping[str, Any]) -> list[str]:
        # In an order of their own: a product depends on it in the last bit.
        return sorted(self.times or [name for name in names if name not in self.sum])

    def _paid(self, values: Mapping[str, float | None]) -> float | None:
        factors = [values[name] for name in self._factors(values)]
        if self.sum:
            factors.append(
                total(weighed({name: values[name] for name in sorted(self.sum)}, self.sum))
            )
        return None if None in factors else math.prod(each or 0.0 for each in factors)


def _times(corner: Sequence[float]) -> float:
    """A product in which nothing times anything is nothing."""
    return 0.0 if 0.0 in corner else math.prod(corner)
