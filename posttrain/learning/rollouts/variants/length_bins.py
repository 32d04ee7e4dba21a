"""How often samples are right by how long they are, and which length is best."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.strategies.base import DrawnSamples
from posttrain.learning.rollouts.variants.base import Variant

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.data.schemas import Problem


class LengthBins(Variant):
    """Sorts the samples of each level of difficulty into bins of equally many by their length.

    `bin_1` (the shortest) to `bin_B` are how often the samples of each bin are right, over the
    problems that have samples there; `hump` is the best inner bin less the better of the two
    outer ones: above 0 where accuracy rises with length and falls again. `best_L` is the mean
    length within the best bin of level L, `grows` the rank correlation of level and best length.
    """

    SOURCE = (
        "Wu et al., 'When More is Less: Understanding Chain-of-Thought Length in LLMs',"
        " arXiv:2502.07266, section 2"
    )

    kind: Literal["length_bins"] = "length_bins"
    bins: int = Field(default=5, ge=3)
    """B: bins of a level."""

    def measured(
        self,
        drawn: DrawnSamples,
        plain: DrawnSamples,  # noqa: ARG002 - see `Variant.measured`
        problems: Sequence["Problem"],
    ) -> Mapping[str, "Tensor"]:
        """Grade the bins; see `Variant.measured`."""
        import torch

        from posttrain.learning.maths.ranks import rank_correlation

        assert drawn.lengths_PN is not None
        levels_P = torch.tensor([problem.difficulty for problem in problems])
        bins_PN, best = torch.zeros_like(drawn.correct_PN).long(), {}
        for level in sorted(set(levels_P.tolist())):
            of_it_P = levels_P == level
            bins_PN[of_it_P] = _places(drawn.lengths_PN[of_it_P], self.bins)
            inside = [(bins_PN == number) & of_it_P[:, None] for number in range(self.bins)]
            right = [_mean(drawn.correct_PN[each]) for each in inside]
            number = max(range(self.bins), key=lambda each: right[each])
            best[level] = _mean(drawn.lengths_PN[inside[number]])
        by_bin = [
            (drawn.correct_PN * (bins_PN == number)).sum(-1) / (bins_PN == number).sum(-1)
            for number in range(self.bins)
        ]
        found = {f"bin_{number}": values_P for number, values_P in enumerate(by_bin, start=1)}
        means = [_mean(values_P[values_P.isfinite()]) for values_P in by_bin]
        hump = max(means[1:-1]) - max(means[0], means[-1])
        told = {"hump": hump, **{f"best_{level}": each for level, each in best.items()}}
        grows = rank_correlation(torch.tensor([*best]), torch.tensor([*best.values()]))
        if grows is not None:
            told["grows"] = grows
        every_P = torch.ones(len(problems), dtype=torch.float64)
        return {**found, **{name: value * every_P for name, value in told.items()}}


def _places(lengths_PN: "Tensor", bins: int) -> "Tensor":
    """The bin of each sample, from 0; samples of one length share the bin of the middle one."""
    from posttrain.learning.maths.ranks import ranks

    flat = ranks(lengths_PN.flatten())
    return (flat * bins / len(flat)).long().clamp(max=bins - 1).view_as(lengths_PN)


def _mean(values_N: "Tensor") -> float:
    return float(values_N.mean()) if len(values_N) else float("-inf")
