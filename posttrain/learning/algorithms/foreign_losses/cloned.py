"""Foreign tokens by their likelihood alone."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss

if TYPE_CHECKING:
    from torch import Tensor


class Cloned(ForeignLoss):
    """`-weight log p` whatever the advantage: REINFORCE with one advantage for all that joined."""

    SOURCE = "AEPO, arXiv 2510.08141; 597358816/AEPO at b353a05, verl/trainer/ray_trainer.py (fit)"

    kind: Literal["cloned"] = "cloned"
    weight: float = Field(default=1.0, gt=0.0)
    """The advantage that each of their tokens has."""

    def token_loss(
        self,
        logprobs_BT: "Tensor",
        before_BT: "Tensor",  # noqa: ARG002
        advantages_BT: "Tensor",  # noqa: ARG002
    ) -> "Tensor":
        """Weigh the log-probabilities alike; see `ForeignLoss.token_loss`."""
        return -self.weight * logprobs_BT

    def describe(self) -> str:
        """`foreign cloned 1`."""
        return f"foreign cloned {self.weight:g}"
