"""Drawn again with an end that is likelier, or less likely, than the policy has it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import DecodingBench, Variant

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import RolloutEngine


class EndScaled(Variant):
    """Multiplies the log-probability of the end, at every token, by a temperature of its own.

    `pass_at_1` is how often samples are right then, `change` that less how often they are as the
    policy draws them, `length` the mean number of tokens, `saved` how many fewer those are.
    """

    SOURCE = (
        "Zhang et al., 'Making Small Language Models Efficient Reasoners', arXiv:2505.07961,"
        " abstract: temperature scaling of where thinking stops (TS)"
    )

    kind: Literal["end_scaled"] = "end_scaled"
    temperature: float = Field(gt=0.0)
    """Factor of the end's log-probability; below 1 answers end sooner, 1 changes nothing."""

    def drawn_by(self, bench: DecodingBench) -> "RolloutEngine":
        """Draw with the scaled end; see `Variant.drawn_by`."""
        from posttrain.learning.rollouts.engines.end_scaled import EndScaledEngine

        return EndScaledEngine(
            bench.policy, temperature=self.temperature, batch_size=bench.batch_size
        )

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,
        problems: Sequence["Problem"],  # noqa: ARG002 - see `Variant.measured`
    ) -> Mapping[str, "Tensor"]:
        """Compare with the policy's own end; see `Variant.measured`."""
        assert drawn.lengths_PN is not None
        assert plain.lengths_PN is not None
        right_P, length_P = drawn.correct_PN.mean(-1), drawn.lengths_PN.mean(-1)
        return {
            "pass_at_1": right_P,
            "change": right_P - plain.correct_PN.mean(-1),
            "length": length_P,
            "saved": plain.lengths_PN.mean(-1) - length_P,
        }
