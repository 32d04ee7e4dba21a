"""Right and wrong rollouts with a weight of their own, each side averaged by itself."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


class OutcomeWeight(TokenWeight):
    """`right N / N_right` at the tokens of right rollouts, `wrong N / N_wrong` at all others.

    N counts the generation's drawn tokens, and a rollout whose reward is above 0 is right. With
    `aggregation: token_mean` and one update a step, the loss is then `right` times the mean over
    right tokens plus `wrong` times that over wrong ones, however many there are of each.
    """

    SOURCE = (
        "OREAL, arXiv 2502.06781; InternLM/OREAL at 2859cc0, train_oreal.py"
        " (positive_loss_factor, negative_loss_factor)"
    )

    kind: Literal["outcome"] = "outcome"
    """Successes and failures count apart."""
    right: float = Field(default=1.0, ge=0.0)
    """Weight of the mean over right tokens."""
    wrong: float = Field(default=1.0, ge=0.0)
    """Weight of the mean over wrong tokens."""

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":  # noqa: ARG002
        """Count both sides; see `TokenWeight.of_generation`. ``[B, 1]``."""
        import torch

        size_B = needed(rollouts.mask_BT, "mask_BT", "token weight outcome").sum(-1)
        right_B = rollouts.rewards_B > 0
        total, among = size_B.sum(), size_B[right_B].sum()
        each = torch.where(
            right_B,
            self.right * total / among.clamp(min=1),
            self.wrong * total / (total - among).clamp(min=1),
        )
        return each[:, None]

    def describe(self) -> str:
        """`right 1 wrong 0.5`."""
        return f"right {self.right:g} wrong {self.wrong:g}"
