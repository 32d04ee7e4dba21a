"""Next-token prediction."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.training.row_losses.base import LearnedTokens, RowLoss

if TYPE_CHECKING:
    from torch import Tensor


class CrossEntropy(RowLoss):
    """Predict every token of every row: ``-log p``.

    Source: maximum likelihood, as the supervised fine-tuning of InstructGPT, arXiv 2203.02155.
    """

    kind: Literal["cross_entropy"] = "cross_entropy"

    def losses(self, tokens: LearnedTokens) -> "Tensor":
        """Negate the log-probabilities; see `RowLoss.losses`."""
        return -tokens.logprobs_N
