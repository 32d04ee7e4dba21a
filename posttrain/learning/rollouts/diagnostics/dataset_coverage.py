"""How good the trajectories of a data set are, and how much of the state-action space they see."""

from typing import Literal

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic, Seen
from posttrain.learning.rollouts.diagnostics.samples import (
    PolicySamples,
    reference_samples,
    samples_by_policy,
)


class DatasetCoverage(Diagnostic):
    """Measures trajectory quality and state-action coverage of what each policy wrote.

    A text is a trajectory, each of its beginnings a state and the character behind it an action, in
    an MDP that is deterministic. `saco` is the number of different state-action pairs as a share of
    the reference's; `tq` is the mean score, from 0 at the least that a problem can earn to 1 at
    the most that any of the policies earned on average.
    """

    SOURCE = (
        "Schweighofer et al., 'A Dataset Perspective on Offline Reinforcement Learning',"
        " arXiv:2111.04714, section 3; kschweig/OfflineRL at 05715d2,"
        " source/offline_ds_evaluation/evaluator.py"
    )
    NEEDS = frozenset({"reports", "completions"})

    kind: Literal["dataset_coverage"] = "dataset_coverage"

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Measure what every policy wrote; see `Diagnostic.diagnose`."""
        found = samples_by_policy(seen)
        pairs = _state_actions(reference_samples(seen, found))
        best = max(float(each.scores_PN.mean()) for each in found.values())
        return Diagnosis(
            {
                name: {
                    "state_actions": float(_state_actions(samples)),
                    **({"saco": _state_actions(samples) / pairs} if pairs else {}),
                    **({"tq": float(samples.scores_PN.mean()) / best} if best else {}),
                }
                for name, samples in found.items()
            }
        )


def _state_actions(samples: PolicySamples) -> int:
    """Count pairs of a problem's beginning of a text and what follows; the end is an action too."""
    return sum(
        len({text[:place] for text in texts for place in range(1, len(text) + 1)}) + len(set(texts))
        for texts in samples.texts
    )
