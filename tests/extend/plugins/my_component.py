"""A component is one of the numbers that a reward is made of. In the recipe:

rl:
  reward:
    components: {correct: verifier, brief: {kind: brevity, longest: 12}}
"""

from collections.abc import Sequence
from typing import Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry


class Brevity(Component):
    """Pay for every character below the longest allowed; None where the answer was cut off."""

    kind: Literal["brevity"] = "brevity"
    longest: int
    """Characters at which nothing is paid."""

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Look at the texts."""
        paid = [max(0.0, 1 - len(text) / self.longest) for text in group.texts]
        return [None if cut else pay for pay, cut in zip(paid, group.truncated, strict=True)]


PARTS = {"component": {"brevity": Brevity}}
