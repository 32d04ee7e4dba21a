"""A verifier scores answers; the rows of problems name it, so set it at their source:

synthesize:
  sources:
  - {kind: letters, name: letters, longest: 60, verifier: {kind: parity, answer: untrimmed}}
"""

from typing import Literal

from posttrain.learning.rewards.score import Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier


class Parity(ComparingVerifier):
    """Accept answers with an even number of characters."""

    kind: Literal["parity"] = "parity"
    odd: bool = False
    """Accept odd numbers instead."""

    def compare(self, answer: str, problem: object) -> Score:
        """Return 1 for an accepted answer, 0 for another one, and the reason."""
        right = len(answer) % 2 == int(self.odd)
        return Score(1.0, "correct") if right else Score(0.0, "uneven")


PARTS = {"verifier": {"parity": Parity}}
