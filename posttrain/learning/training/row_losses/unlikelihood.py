"""Right rows are imitated, and the tokens of wrong ones made unlikely."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor


class Unlikelihood(RowLoss):
    """``-log p`` in right rows, ``-coefficient log(1 - p)`` in wrong ones."""

    SOURCE = (
        "Neural Text Generation with Unlikelihood Training; Welleck et al. 2019, arXiv 1908.04319,"
        " eq. 5, with the tokens of wrong rows as negative candidates"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"judgments"})

    kind: Literal["unlikelihood"] = "unlikelihood"
    coefficient: float = Field(default=1.0, ge=0.0)
    """Weight of the wrong rows; 0 learns from right ones alone."""

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Take one term or the other by the row; see `RowLoss.losses`."""
        import torch

        # Held where p is 1 to the last bit, so that the gradient is large there and not infinite.
        logprobs_N = tokens.logprobs_N
        below_N = logprobs_N + (logprobs_N.clamp(max=-1e-6) - logprobs_N).detach()
        away_N = -self.coefficient * torch.log(-torch.expm1(below_N))
        return torch.where(tokens.positives_N, -tokens.logprobs_N, away_N)
