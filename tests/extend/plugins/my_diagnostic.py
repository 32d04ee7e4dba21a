"""A diagnostic measures what stages made, policy by policy. In the recipe:

diagnose:
  diagnostics: {sizes: {kind: sizes}}
"""

from typing import Literal

from posttrain.learning.rollouts.diagnostics.base import Diagnosis, Diagnostic


class Sizes(Diagnostic):
    """Counts the weights of each policy."""

    NEEDS = frozenset({"policies"})

    kind: Literal["sizes"] = "sizes"

    def diagnose(self, seen):
        """Count them."""
        from posttrain.learning.models.load import load_policy

        return Diagnosis(
            {
                name: {"weights": float(load_policy(path).model.num_parameters())}
                for name, path in seen.policies.items()
            }
        )


PARTS = {"diagnostic": {"sizes": Sizes}}
