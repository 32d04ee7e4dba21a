"""How far ahead of a random rollout one has to look: the effective horizon of each problem."""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.learning.rollouts.diagnostics.samples import reference_samples, samples_by_policy


class EffectiveHorizon(Diagnostic):
    """Estimates the effective horizon of acting greedily on the Q values of the reference.

    A text is a path in a tree whose branches are characters, and the samples of the reference are
    its random rollouts. On the path that goes by the highest mean score, Δ is the least lead of the
    best branch over the next one; the horizon is 1 + log_A(1/Δ²), infinite where no rollout is
    right. `solvable` is the share of problems with a finite one, `horizon` their median; of every
    other policy `foretold` is the rank correlation, over problems, of the reference's horizon with
    the policy's score: where it is strongly negative, the horizon tells what is learned.
    """

    SOURCE = (
        "Laidlaw et al., 'The Effective Horizon Explains Deep RL Performance in Stochastic"
        " Environments', arXiv:2312.08369, definitions 3.1 to 3.3 at k = 1"
    )
    NEEDS = frozenset({"reports", "completions"})

    kind: Literal["effective_horizon"] = "effective_horizon"
    actions: int = Field(default=32, ge=2)
    """A: actions of a state, such as the characters that there are; the base of the logarithm."""
    least: int = Field(default=2, ge=1)
    """Rollouts from which on a branch counts as one that is known."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Measure the horizon, and what it foretells of the others; see `Diagnostic.diagnose`."""
        import torch

        from posttrain.learning.maths.ranks import rank_correlation

        found = samples_by_policy(seen)
        base = reference_samples(seen, found)
        horizons = [
            self._horizon([*zip(texts, scores, strict=True)])
            for texts, scores in zip(base.texts, base.scores_PN.tolist(), strict=True)
        ]
        finite = sorted(each for each in horizons if math.isfinite(each))
        figures = {seen.reference: {"solvable": len(finite) / len(horizons)}}
        if finite:
            figures[seen.reference]["horizon"] = finite[len(finite) // 2]
        horizons_P = torch.tensor(horizons, dtype=torch.float64)
        for name, samples in found.items():
            if name != seen.reference:
                told = rank_correlation(horizons_P, samples.scores_PN.mean(-1))
                figures[name] = {} if told is None else {"foretold": told}
        return Diagnosis(figures)

    def _horizon(self, rollouts: Sequence[tuple[str, float]]) -> float:
        """1 + log_A(1/Δ²) along the greedy path; infinite where it ends at nothing right."""
        gap, depth = 1.0, 0
        while len(rollouts) >= self.least:
            branches: dict[str, list[tuple[str, float]]] = {}
            for text, score in rollouts:
                branches.setdefault(text[depth : depth + 1], []).append((text, score))
            known = [each for each in branches.values() if len(each) >= self.least]
            if not known:
                break
            values = sorted((_mean(each) for each in known), reverse=True)
            lower = [value for value in values if value < values[0]]
            if lower:
                gap = min(gap, values[0] - lower[0])
            rollouts = max(known, key=_mean)
            depth += 1
            if all(len(text) < depth for text, _ in rollouts):
                break
        if _mean(rollouts) <= 0:
            return math.inf
        return 1 - 2 * math.log(gap) / math.log(self.actions)


def _mean(rollouts: Sequence[tuple[str, float]]) -> float:
    return sum(score for _, score in rollouts) / len(rollouts)
