"""Documents ranked by a search among their identifiers alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import DecodingBench, Variant

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import RolloutEngine, SamplingParams


class Retrieved(Variant):
    """Ranks identifiers by a beam search that may say nothing else.

    What may be said are the reference answers of all problems that are evaluated. `mrr` is the mean
    of 1 / rank of the right one, 0 where it is not among the first `width`; `hits_1` and `hits` are
    how often it is the first, and among them.
    """

    SOURCE = (
        "DDRO, arXiv 2504.05181: MRR@10 of docids by constrained beam search;"
        " kidist-amde/ddro at 196e5d0, ddro/utils/evaluate.py"
    )

    kind: Literal["retrieved"] = "retrieved"
    width: int = Field(default=10, ge=1)
    """Identifiers that are ranked, and the cut of the mean reciprocal rank."""

    def drawn_by(self, bench: DecodingBench) -> "RolloutEngine":
        """Search among the identifiers; see `Variant.drawn_by`."""
        from posttrain.learning.rollouts.engines.beam import BeamEngine

        return BeamEngine(
            bench.policy,
            width=self.width,
            allowed=_allowed(bench.policy, bench.problems),
            batch_size=bench.batch_size,
        )

    def params(self, params: "SamplingParams") -> "SamplingParams":
        """Take all that are ranked; see `Variant.params`."""
        return replace(params, num_samples=self.width)

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,  # noqa: ARG002 - see `Variant.measured`
        problems: Sequence["Problem"],  # noqa: ARG002
    ) -> Mapping[str, "Tensor"]:
        """Find the rank of the right one; see `Variant.measured`."""
        import torch

        ranks_N = torch.arange(1, drawn.num_samples + 1, dtype=torch.float64)
        right_PN = drawn.correct_PN
        return {
            "mrr": (right_PN / ranks_N).amax(-1),
            "hits_1": right_PN[:, 0],
            "hits": right_PN.amax(-1),
        }


def _allowed(
    policy: "Policy", problems: Sequence["Problem"]
) -> dict[tuple[int, ...], Sequence[int]]:
    """The tokens that may follow each beginning of an identifier."""
    from posttrain.data.templates import encode_completions

    names = sorted({problem.answer for problem in problems})
    found: dict[tuple[int, ...], set[int]] = {}
    for ids in encode_completions(policy.tokenizer, names):
        for place, token in enumerate(ids):
            found.setdefault(tuple(ids[:place]), set()).add(token)
    return {begun: sorted(tokens) for begun, tokens in found.items()}
