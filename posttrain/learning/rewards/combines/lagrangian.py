"""One thing is maximized while others are held within limits, by multipliers that adapt."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.sum import (
    by_answer,
    range_of_sum,
    total,
    weighed,
)
from posttrain.learning.rewards.components.base import FAR, Range
from posttrain.stage.schedule import Schedulable, Weight


class LimitConfig(Schedulable):
    """What the mean score of a component is to be, over the answers of a step."""

    at_least: float | None = None
    """The mean must not be below it."""
    at_most: float | None = None
    """The mean must not be above it."""
    rate: float | None = Field(default=None, gt=0.0)
    """Step size of this multiplier; null for that of the combination."""
    start: float = Field(default=0.0, ge=0.0)
    """The multiplier before the first step."""

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("give one of at_least and at_most, the limit of the mean score")
        return self

    def short(self, score: float) -> float:
        """By how much a score falls short of the limit; negative where it keeps it."""
        if self.at_least is not None:
            return self.at_least - score
        assert self.at_most is not None
        return score - self.at_most


class LagrangianCombine(Combine):
    """Maximize some components while the means of others are held within limits.

    ``reward = sum of maximize - sum_i lambda_i x shortfall_i``, where the shortfall of a score is
    ``limit - score`` for `at_least` and ``score - limit`` for `at_most`. After each step
    ``lambda_i <- max(0, lambda_i + rate x mean shortfall)``, over the answers of the step that were
    judged: a limit that is kept costs nothing in the end, and one that is not costs ever more.
    """

    SOURCE = "Constrained RLHF, Moskovitz et al., arXiv 2310.04373, section 4"

    kind: Literal["lagrangian"] = "lagrangian"
    maximize: Mapping[str, Weight] = Field(default_factory=dict)
    """Component -> weight of what is maximized; empty for all without a limit."""
    limits: Mapping[
        str,
        Annotated[
            LimitConfig,
            BeforeValidator(
                lambda value: {"at_least": value} if isinstance(value, int | float) else value,
                json_schema_input_type=float | LimitConfig,
            ),
        ],
    ] = Field(min_length=1)
    """Component -> limit of its mean: a number that it is at least, or a mapping."""
    rate: float = Field(default=0.05, gt=0.0)
    """Step size of the multipliers."""
    most: float | None = Field(default=None, gt=0.0)
    """The greatest multiplier; null for any."""

    def combine(
        self, scores: Mapping[str, Sequence[float | None]], *, step: int, state: dict[str, Any]
    ) -> Sequence[float | None]:
        """Pay by the multipliers of the step, and note the shortfalls; see `Combine.combine`."""
        now = self._begin(step, state)
        for name, limit in self.limits.items():
            missing = [limit.short(each) for each in scores[name] if each is not None]
            noted = state["noted"].setdefault(name, [0.0, 0])
            noted[0] += math.fsum(missing)
            noted[1] += len(missing)
        return [self._paid(values, now) for values in by_answer(scores)]

    def names(self) -> Sequence[str]:
        """Return what is maximized and what is limited."""
        return (*self.maximize, *self.limits)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Return the ends at the greatest multipliers; see `Combine.bounds`."""
        low, high = range_of_sum({n: ranges[n] for n in self._maximized(ranges)}, self.maximize)
        greatest = FAR if self.most is None else self.most
        for name, limit in self.limits.items():
            ends = sorted(-limit.short(end) for end in ranges[name])
            low += greatest * ends[0] if ends[0] < 0 else 0.0
            high += greatest * ends[1] if ends[1] > 0 else 0.0
        return low, high

    def measures(self) -> Mapping[str, str]:
        """Name the multipliers."""
        return {
            f"multiplier/{name}": f"multiplier of the limit on {name}, in the step"
            for name in self.limits
        }

    def measured(self, state: Mapping[str, Any]) -> dict[str, float]:
        """Return the multipliers of the step."""
        return {f"multiplier/{name}": value for name, value in state["multipliers"].items()}

    def _begin(self, step: int, state: dict[str, Any]) -> Mapping[str, float]:
        """Return the multipliers of a step; a new step moves them by what the last one noted."""
        if not state:
            state["multipliers"] = {name: limit.start for name, limit in self.limits.items()}
        elif state["step"] != step:
            state["multipliers"] = {
                name: self._moved(name, value, *state["noted"][name])
                for name, value in state["multipliers"].items()
            }
        if state.get("step") != step:
            state["step"], state["noted"] = step, {}
        multipliers: Mapping[str, float] = state["multipliers"]
        return multipliers

    def _moved(self, name: str, value: float, shortfall: float, count: int) -> float:
        rate = self.limits[name].rate or self.rate
        moved = max(0.0, value + rate * shortfall / count) if count else value
        return moved if self.most is None else min(moved, self.most)

    def _maximized(self, names: Mapping[str, Any]) -> list[str]:
        return [
            name
            for name in names
            if (name in self.maximize if self.maximize else name not in self.limits)
        ]

    def _paid(
        self, values: Mapping[str, float | None], multipliers: Mapping[str, float]
    ) -> float | None:
        earned = weighed({name: values[name] for name in self._maximized(values)}, self.maximize)
        # A multiplier of 0 costs nothing, but what was not judged is not known to keep its limit.
        costs = [
            None if (value := values[name]) is None else -multipliers[name] * limit.short(value)
            for name, limit in self.limits.items()
        ]
        return total([*earned, *costs])
