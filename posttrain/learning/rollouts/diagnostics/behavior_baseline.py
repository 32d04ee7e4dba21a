"""Whether a policy is better than the one that wrote what it learned from."""

from typing import Literal

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.learning.rollouts.diagnostics.samples import reference_samples, samples_by_policy


class BehaviorBaseline(Diagnostic):
    """Holds each policy against the behavior policy, the reference, on the same problems.

    `gain` is the mean score less that of the behavior policy, `gain_low` and `gain_high` the ends
    of its 95% interval over problems, `normalized` the gain as a share of what was left to gain,
    `beats` 1 where the interval lies above 0, else 0.
    """

    SOURCE = "Gao et al., 'NeoRL-2', arXiv:2503.19267, section 5: the behavior policy as baseline"
    NEEDS = frozenset({"reports", "completions"})

    kind: Literal["behavior_baseline"] = "behavior_baseline"

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Compare every policy with the behavior policy; see `Diagnostic.diagnose`."""
        import torch

        from posttrain.learning.maths.intervals import clustered_mean_interval

        found = samples_by_policy(seen)
        behavior_P = reference_samples(seen, found).scores_PN.mean(-1)
        left = 1.0 - float(behavior_P.mean())
        figures = {}
        for name, samples in found.items():
            if name == seen.reference:
                continue
            gain_P = samples.scores_PN.mean(-1) - behavior_P
            interval = clustered_mean_interval(gain_P, torch.arange(len(gain_P)))
            gain, low = float(interval.estimate), float(interval.low)
            figures[name] = {
                "gain": gain,
                "gain_low": low,
                "gain_high": float(interval.high),
                "beats": float(low > 0),
                **({"normalized": gain / left} if left > 0 else {}),
            }
        return Diagnosis(figures)
