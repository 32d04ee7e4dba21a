"""Foreign tokens by their probability, shaped so that unlikely ones count for more."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss

if TYPE_CHECKING:
    from torch import Tensor


class Shaped(ForeignLoss):
    """`-A p / (p + gamma)`: the author's probability is taken as 1, and the ratio is shaped.

    Its gradient by log p is `-A gamma p / (p + gamma)^2`, largest at p = gamma: tokens that the
    policy holds unlikely, but not impossible.
    """

    SOURCE = "LUFFY, arXiv 2504.14945, section 3.3; Critique-GRPO, arXiv 2506.03106; AMPO"

    kind: Literal["shaped"] = "shaped"
    gamma: float = Field(default=0.1, ge=0.0)
    """Where the gradient is largest; 0 leaves a constant, and no gradient."""

    def token_loss(
        self,
        logprobs_BT: "Tensor",
        before_BT: "Tensor",
        advantages_BT: "Tensor",  # noqa: ARG002
    ) -> "Tensor":
        """Shape the probabilities; see `ForeignLoss.token_loss`."""
        probs_BT = logprobs_BT.exp()
        return -advantages_BT * probs_BT / (probs_BT + self.gamma)

    def describe(self) -> str:
        """`foreign shaped 0.1`."""
        return f"foreign shaped {self.gamma:g}"
