"""A combination makes one number of the named scores of an answer. In the recipe:

rl:
  reward: {combine: {kind: gate, by: correct}}
"""

from typing import Literal

from posttrain.learning.rewards.combines.base import Combine


class Gate(Combine):
    """Add up the scores, but pay a wrong answer only a part of them."""

    kind: Literal["gate"] = "gate"
    by: str
    """The component that says whether the answer is right."""
    share: float = 0.5
    """What is paid for a wrong answer."""

    def combine(self, scores, *, step, state):
        """Take a score that could not be judged for 0, and count the calls."""
        state["calls"] = state.get("calls", 0) + 1
        sums = [sum(value or 0.0 for value in each) for each in zip(*scores.values(), strict=True)]
        shares = [1.0 if right else self.share for right in scores[self.by]]
        return [total * share for total, share in zip(sums, shares, strict=True)]

    def names(self):
        return (self.by,)


PARTS = {"combine": {"gate": Gate}}
