"""A strategy makes one answer of several samples of a problem. In the recipe:

evaluate:
  strategies: [{kind: shared_answer, at_least: 2}]
"""

from collections import Counter
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy

if TYPE_CHECKING:
    from torch import Tensor


class SharedAnswer(Strategy):
    """Answers only where so many samples state the same, and is wrong elsewhere."""

    kind: Literal["shared_answer"] = "shared_answer"
    at_least: int = 2
    """Samples that must agree."""

    def solved(self, samples: DrawnSamples, k: int) -> "Tensor":
        """Count the right samples where enough of the first k agree."""
        import torch

        agreed = [Counter(given[:k]).most_common(1)[0][1] for given in samples.answers]
        enough_P = torch.tensor([count >= self.at_least for count in agreed])
        return enough_P * samples.correct_PN[:, :k].mean(-1)


PARTS = {"strategy": {"shared_answer": SharedAnswer}}
