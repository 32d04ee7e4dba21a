"""A constraint is what an instruction asks of a text; the verifier `instructions` takes some:

synthesize:
  sources:
  - {kind: letters, name: brief, longest: 30,
     verifier: {kind: instructions, constraints: [{kind: short, longest: 12}]}}
"""

from typing import Literal

from posttrain.learning.rewards.constraints.base import Constraint


class Short(Constraint):
    """Ask for a short text."""

    kind: Literal["short"] = "short"
    longest: int
    """Characters of the longest one."""

    def followed(self, text: str) -> bool:
        """Count the characters."""
        return len(text) <= self.longest


PARTS = {"constraint": {"short": Short}}
