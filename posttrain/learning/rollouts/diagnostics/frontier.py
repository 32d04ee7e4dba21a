"""What a policy earns, against the best of so many samples at the same divergence."""

import math
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.diagnostics.base import (
    Diagnosis,
    Diagnostic,
    DrawnLine,
    Seen,
    values_by_step,
)
from posttrain.learning.rollouts.diagnostics.samples import reference_samples, samples_by_policy
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


class Frontier(Diagnostic):
    """Compares policies with best-of-N of the reference, by the verifier's own score.

    Of N samples the best one diverges from the reference by at most ln N - (N - 1)/N nats, and is
    right with pass@N. `divergence` is that of a policy at its last steps, in nats per answer,
    `earned` how often it is right, `best_of_n` how often the best of as many samples as diverge as
    much would be, between two N by a line; `off` is `earned` less that. Policies that diverge more
    than the best of all samples have `divergence` and `earned` alone.
    """

    SOURCE = (
        "Yang et al., 'Asymptotics of Language Model Alignment', arXiv:2404.01730; the bound:"
        " Beirami et al., arXiv:2401.01879, theorem 1"
    )
    NEEDS = frozenset({"reports", "completions", "curves"})

    kind: Literal["frontier"] = "frontier"
    divergence: str = "rl/kl"
    """Metric of the divergence from the reference, in nats per token."""

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Hold every policy that has a curve against best-of-N; see `Diagnostic.diagnose`."""
        found = samples_by_policy(seen)
        line = self._best_of(seen.reference, reference_samples(seen, found).correct_PN)
        figures = {}
        for name, path in seen.curves.items():
            if name not in found:
                continue
            at, earned = self._last(path, name), float(found[name].correct_PN.mean())
            figures[name] = {"divergence": at, "earned": earned}
            if at <= line.x[-1]:
                best = _between(line, at)
                figures[name] |= {"best_of_n": best, "off": earned - best}
        return Diagnosis(figures, [line], ("divergence, in nats", "share of right answers"))

    def _best_of(self, name: str, correct_PN: "Tensor") -> DrawnLine:
        import torch

        from posttrain.learning.maths.pass_at_k import pass_at_k

        right_P = correct_PN.sum(-1)
        number_P = torch.full_like(right_P, correct_PN.shape[1])
        ns = range(1, correct_PN.shape[1] + 1)
        passed = [float(pass_at_k(right_P, number_P, k=n).mean()) for n in ns]
        return DrawnLine(f"best of N of {name}", [math.log(n) - (n - 1) / n for n in ns], passed)

    def _last(self, path: "Path", name: str) -> float:
        """Nats per answer, as a mean over the last tenth of the steps."""
        per_token, lengths = (
            values_by_step(path, metric) for metric in (self.divergence, "rl/length")
        )
        if not per_token:
            raise UserError(
                f"diagnose: the curve of {name} has no {self.divergence}; give the algorithm a"
                " regularizer kl"
            )
        # A step in which no answer came to its end has no length.
        nats = [kl * lengths[step] for step, kl in per_token.items() if step in lengths]
        tenth = math.ceil(len(nats) / 10)
        return max(0.0, float(sum(nats[-tenth:])) / tenth)


def _between(line: DrawnLine, x: float) -> float:
    """Height of a line at a place between its ends."""
    at = next((n for n, each in enumerate(line.x) if each >= x), len(line.x) - 1)
    if at == 0:
        return line.y[0]
    share = (x - line.x[at - 1]) / (line.x[at] - line.x[at - 1])
    return line.y[at - 1] + share * (line.y[at] - line.y[at - 1])
