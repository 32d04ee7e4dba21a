"""A variant asks policies otherwise, or grades them otherwise. In the recipe:

evaluate:
  variants: {shouted: {kind: shouted, behind: " !"}}
"""

from dataclasses import replace
from typing import Literal

from posttrain.learning.rollouts.variants.base import Variant


class Shouted(Variant):
    """Asks with something behind every prompt, and says how much of the accuracy stays."""

    kind: Literal["shouted"] = "shouted"
    behind: str
    """What is put behind."""

    def posed(self, problems):
        """Put it behind."""
        return [replace(each, prompt=each.prompt + self.behind) for each in problems]

    def measured(self, drawn, plain, problems):
        """Compare with the plain prompts."""
        return {"lost": plain.correct_PN.mean(-1) - drawn.correct_PN.mean(-1)}


PARTS = {"variant": {"shouted": Shouted}}
