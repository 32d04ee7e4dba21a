"""The likeliest answer that a beam search finds, in place of drawn ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import DecodingBench, Variant, compared

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams


class Beam(Variant):
    """Answers by the end of a beam search over the policy's own likelihood.

    `pass_at_1` is how often that one answer is right, `change` that less how often drawn ones are;
    `length` is its number of tokens. After DPO the likelihood is what a search by the implicit
    reward, with its value, would maximize.
    """

    SOURCE = (
        "Rafailov et al., 'From r to Q*: Your Language Model is Secretly a Q-Function',"
        " arXiv:2404.12358: search on a DPO policy is search by likelihood"
    )

    kind: Literal["beam"] = "beam"
    width: int = Field(default=5, ge=1)
    """Beginnings that are kept of each answer; 1 takes the likeliest token each time."""

    def drawn_by(self, bench: DecodingBench) -> "RolloutEngine":
        """Search with the policy that is graded; see `Variant.drawn_by`."""
        from posttrain.learning.rollouts.engines.beam import BeamEngine

        return BeamEngine(bench.policy, width=self.width, batch_size=bench.batch_size)

    def params(self, params: "SamplingParams") -> "SamplingParams":
        """Take one answer: the search is no chance; see `Variant.params`."""
        return replace(params, num_samples=1)

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,
        problems: Sequence["Problem"],  # noqa: ARG002 - see `Variant.measured`
    ) -> Mapping[str, "Tensor"]:
        """Compare with drawn answers; see `Variant.measured`."""
        return compared(drawn, plain)
