"""Gates in an order: the first that an answer fails fixes its reward."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.sum import (
    by_answer,
    range_of_sum,
    total,
    weighed,
)
from posttrain.learning.rewards.components.base import Range
from posttrain.stage.schedule import Schedulable, Weight


class GateConfig(Schedulable):
    """One gate: a component that an answer must satisfy to be paid by what comes after."""

    component: str
    """Whose score is looked at."""
    least: float = 1.0
    """The least score that passes."""
    pays: float = 0.0
    """The whole reward of an answer that fails here; it may be negative."""


class GatedCombine(Combine):
    """Let answers through gates in their order, and pay those that pass the weighted sum.

    The first gate that an answer fails fixes its reward, so that what comes after it is no
    comfort. Gates themselves pay nothing unless `sum` gives them a weight.

    `R = pays_g` of the first gate g with `r_g < least_g`; else `Σ_s w_s r_s`.
    """

    SOURCE = "ToolRL, arXiv 2504.13958 (format before correctness); Sequential and Gate of OpenEnv"

    kind: Literal["gated"] = "gated"
    gates: list[
        Annotated[
            GateConfig,
            BeforeValidator(
                lambda value: {"component": value} if isinstance(value, str) else value,
                json_schema_input_type=str | GateConfig,
            ),
        ]
    ] = Field(min_length=1)
    """In order, each a component's name or a mapping; the first one failed fixes the reward."""
    sum: Mapping[str, Weight] = Field(default_factory=dict)
    """Component -> weight of what those are paid that pass; empty for all that are no gate."""

    def combine(
        self,
        scores: Mapping[str, Sequence[float | None]],
        *,
        step: int,  # noqa: ARG002 - its numbers have been put at the step
        state: dict[str, Any],  # noqa: ARG002 - nothing is remembered
    ) -> Sequence[float | None]:
        """Ask gate by gate, then add up; see `Combine.combine`."""
        return [self._paid(values) for values in by_answer(scores)]

    def names(self) -> Sequence[str]:
        """Return the gates, and what has a weight."""
        return (*(gate.component for gate in self.gates), *self.sum)

    def bounds(self, ranges: Mapping[str, Range]) -> Range:
        """Find the least that passing pays, and the most that passing or a gate pays.

        That a right answer may fail a gate is what a gate says, and no bonus to others.

        Args:
            ranges: Component -> its least and greatest score.

        Returns:
            Both ends.

        """
        pays: list[float] = []
        for gate in self.gates:
            low, high = ranges[gate.component]
            if low < gate.least:
                pays.append(gate.pays)
            if high < gate.least:
                return min(pays), max(pays)
        low, high = range_of_sum({name: ranges[name] for name in self._summed(ranges)}, self.sum)
        return low, max((*pays, high))

    def _summed(self, names: Mapping[str, Any]) -> list[str]:
        gates = {gate.component for gate in self.gates}
        return [name for name in names if (name in self.sum if self.sum else name not in gates)]

    def _paid(self, values: Mapping[str, float | None]) -> float | None:
        for gate in self.gates:
            value = values[gate.component]
            if value is None:
                return None
            if value < gate.least:
                return gate.pays
        return total(weighed({name: values[name] for name in self._summed(values)}, self.sum))
