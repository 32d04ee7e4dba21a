"""What is known of pairs beside their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PairFacts:
    """What is known of the pairs of a batch, ``[B]``, where not all are as sure and as heavy."""

    weight_B: Tensor
    """How much each counts in the mean."""
    label_prob_B: Tensor
    """Probability that the chosen completion is the better one."""
    gap_B: Tensor | None = None
    """Score of the chosen completion less that of the rejected one; None where not asked for."""

    def to(self, device: str | torch.device) -> "PairFacts":
        """The same on `device`."""
        gap_B = None if self.gap_B is None else self.gap_B.to(device)
        return PairFacts(self.weight_B.to(device), self.label_prob_B.to(device), gap_B)

    def take(self, kept: Sequence[int]) -> "PairFacts":
        """The facts of the pairs of these indices."""
        chosen = list(kept)
        gap_B = None if self.gap_B is None else self.gap_B[chosen]
        return PairFacts(self.weight_B[chosen], self.label_prob_B[chosen], gap_B)
