"""Imitation that is an f-divergence other than the one whose loss is ``-log p``."""

import math
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor

_LARGEST = 20.0


class FDivergence(RowLoss):
    """The f-divergence of each row's token, as a distribution that is sure, from the policy's.

    ``D_f(token || policy) = p f(1/p) + (1 - p) f(0)`` for the token's probability p. Of the power
    divergences that is ``(1 - p^alpha) / alpha``: the gradient of ``log p`` is weighed by
    ``p^alpha``, so that a positive alpha leaves alone what the policy holds to be unlikely, and a
    negative one insists on it. Alpha 0 is cross-entropy (Kullback-Leibler), 1/2 the squared
    Hellinger distance, 1 the total variation, -1 chi-squared. Jensen-Shannon is
    ``log 2 + (p log p - (1 + p) log(1 + p)) / 2``, with the weight ``p/2 log((1 + p) / p)``.

    These are no objectives with a divergence from the reference in them (arXiv 2507.00018 derives
    some): the loss looks at the policy alone.
    """

    SOURCE = (
        "f-divergences: Csiszar 1967, in the case of a distribution on one token. As losses of"
        " fine-tuning: Beyond Log Likelihood; Li et al. 2025, arXiv 2510.00526 (-p and -p^10 among"
        " them); alpha 1 has the gradient of Dynamic Fine-Tuning; Wu et al. 2025, arXiv 2508.05629"
    )

    kind: Literal["f_divergence"] = "f_divergence"
    divergence: Literal["power", "jensen_shannon"] = "power"
    """Of the token from the policy."""
    alpha: float = Field(default=0.5, ge=-1.0, le=10.0)
    """Of the power divergence: 0 cross-entropy, 0.5 squared Hellinger, 1 total variation, -1
    chi-squared."""

    def without_effect(self) -> frozenset[str]:
        """`alpha` with another divergence."""
        return frozenset({"alpha"} if self.divergence != "power" else ())

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Measure the divergence of every token; see `RowLoss.losses`."""
        import torch

        log_p_N = tokens.logprobs_N
        if self.divergence == "jensen_shannon":
            p_N = log_p_N.exp()
            return math.log(2) + (p_N * log_p_N - (1 + p_N) * torch.log1p(p_N)) / 2
        if self.alpha == 0:
            return -log_p_N
        power_N = self.alpha * log_p_N
        # Held where a negative alpha would overflow, and the gradient passes as if it were not.
        held_N = power_N + (power_N.clamp(max=_LARGEST) - power_N).detach()
        return -torch.expm1(held_N) / self.alpha
