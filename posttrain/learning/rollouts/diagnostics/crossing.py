"""Where a policy's pass@k falls below that of the one it was trained from, and what it lost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, DrawnLine, Seen
from posttrain.learning.rollouts.diagnostics.samples import (
    PolicySamples,
    reference_samples,
    samples_by_policy,
)
from posttrain.stage.seeds import purpose_seed

if TYPE_CHECKING:
    from torch import Tensor


class Crossing(Diagnostic):
    """Compares pass@k with the reference's at rising k: where the curves cross, who solves what.

    `gap_K` is pass@K less the reference's, for each K. `crossing` is the smallest K from 2 on at
    which a policy that was ahead at 1 is not any more, and is left out where there is none up to
    the number of samples; `crosses` is the share of resamples of the problems in which there is
    one, `crossing_low` and `crossing_high` are the ends of its 95% interval over these (2 K where
    it lies beyond). `only_it` and `only_reference` count the problems that one alone solves in
    all of its samples.
    """

    SOURCE = (
        "Yue et al., 'Does Reinforcement Learning Really Incentivize Reasoning Capacity in LLMs"
        " Beyond the Base Model?', arXiv:2504.13837, sections 2 and 3; Chen et al.,"
        " arXiv:2107.03374, equation 1"
    )
    NEEDS = frozenset({"reports", "completions"})

    kind: Literal["crossing"] = "crossing"
    resamples: int = Field(default=1000, ge=100)
    """Resamples of the problems, with replacement."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Compare every policy with the reference; see `Diagnostic.diagnose`."""
        found = samples_by_policy(seen)
        base = reference_samples(seen, found)
        figures, lists, lines = {}, {}, []
        for name, samples in found.items():
            ks = _doubling(min(samples.correct_PN.shape[1], base.correct_PN.shape[1]))
            passed_PK = _passed(samples, ks)
            lines.append(_line(name, ks, passed_PK))
            if name == seen.reference:
                continue
            seed = purpose_seed(seen.seed, "crossing", name)
            difference_PK = passed_PK - _passed(base, ks)
            figures[name] = _crossed(difference_PK, ks, self.resamples, seed)
            here, there = (each.correct_PN.any(-1).tolist() for each in (samples, base))
            ids = samples.problems
            pairs = [*zip(ids, here, there, strict=True)]
            lists[f"only_{name}"] = [each for each, ours, theirs in pairs if ours and not theirs]
            lost = [each for each, ours, theirs in pairs if theirs and not ours]
            lists[f"only_{seen.reference}_beside_{name}"] = lost
            figures[name] |= {
                "only_it": float(len(lists[f"only_{name}"])),
                "only_reference": float(len(lost)),
            }
        return Diagnosis(figures, lines, ("samples k", "pass@k"), doubling=True, lists=lists)


def _doubling(most: int) -> list[int]:
    """1, 2, 4, ... and the largest number itself."""
    return sorted({most, *(1 << power for power in range(most.bit_length()))})


def _passed(samples: PolicySamples, ks: Sequence[int]) -> "Tensor":
    """pass@k of each problem, float64 ``[P, K]``."""
    import torch

    from posttrain.learning.maths.pass_at_k import pass_at_k

    right_P = samples.correct_PN.sum(-1)
    drawn_P = torch.full_like(right_P, samples.correct_PN.shape[1])
    return torch.stack([pass_at_k(right_P, drawn_P, k=k) for k in ks], -1)


def _line(name: str, ks: Sequence[int], passed_PK: "Tensor") -> DrawnLine:
    import torch

    from posttrain.learning.maths.intervals import clustered_mean_interval

    ends = [clustered_mean_interval(each, torch.arange(len(each))) for each in passed_PK.unbind(-1)]
    y, low, high = (
        [min(1.0, max(0.0, float(getattr(each, name)))) for each in ends]
        for name in ("estimate", "low", "high")
    )
    return DrawnLine(name, [float(k) for k in ks], y, low, high)


def _crossed(
    difference_PK: "Tensor", ks: Sequence[int], resamples: int, seed: int
) -> dict[str, float]:
    import torch

    number = len(difference_PK)
    draws = torch.randint(
        number, (resamples, number), generator=torch.Generator().manual_seed(seed)
    )
    means_RK = torch.stack([difference_PK[draw].mean(0) for draw in draws])
    found = {
        f"gap_{k}": float(gap) for k, gap in zip(ks, difference_PK.mean(0).tolist(), strict=True)
    }
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.quantile(means_RK[:, -1], ends).tolist()
    found |= {"gap_low": low, "gap_high": high}
    met = _first(difference_PK.mean(0)[None], ks)[0]
    if met <= ks[-1]:
        found["crossing"] = met
    met_R = torch.tensor(_first(means_RK, ks), dtype=torch.float64)
    low, high = torch.quantile(met_R, ends, interpolation="nearest").tolist()
    return found | {
        "crosses": float((met_R <= ks[-1]).double().mean()),
        "crossing_low": low,
        "crossing_high": high,
    }


def _first(gaps_RK: "Tensor", ks: Sequence[int]) -> list[float]:
    """The first k from 2 on at which a gap that was above 0 at 1 is not; else twice the last."""
    beyond = 2.0 * ks[-1]
    return [
        next((float(k) for k, gap in zip(ks[1:], gaps[1:], strict=True) if gap <= 0), beyond)
        if gaps[0] > 0
        else beyond
        for gaps in gaps_RK.tolist()
    ]
