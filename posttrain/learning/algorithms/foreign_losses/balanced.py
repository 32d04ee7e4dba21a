"""Foreign tokens by multiple importance sampling, with those that are hard to find put first."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss

if TYPE_CHECKING:
    from torch import Tensor


class Balanced(ForeignLoss):
    """`-A (1 - p)^focus 2 p / (p_old + q)`: drawn as if by the policy of before or by another.

    The author is not known; `q = (p_old + 1) / 2` takes it for halfway between the policy of before
    and one that is sure of what it wrote. The factor `(1 - p)^focus`, without gradient, is the
    advantage of exploring: tokens that the policy would hardly say count for most.
    """

    SOURCE = (
        "RL-PLUS, arXiv 2508.00222, equations 4 to 7; YihongDong/RL-PLUS at eb4aa4d,"
        " verl/recipe/rlplus_core_alg.py (compute_token_on_off_policy_loss)"
    )

    kind: Literal["balanced"] = "balanced"
    focus: float = Field(default=0.5, ge=0.0)
    """How much less a likely token counts; 0 leaves the advantages as they are."""

    def token_loss(
        self, logprobs_BT: "Tensor", before_BT: "Tensor", advantages_BT: "Tensor"
    ) -> "Tensor":
        """Weigh by both policies; see `ForeignLoss.token_loss`."""
        probs_BT, old_BT = logprobs_BT.exp(), before_BT.exp()
        ratio_BT = 2 * probs_BT / (old_BT + (old_BT + 1) / 2)
        # At 1 the power of a number that rounding made negative would be none.
        found_BT = (1 - probs_BT.detach()).clamp(min=0) ** self.focus
        return -advantages_BT * found_BT * ratio_BT

    def describe(self) -> str:
        """`foreign balanced 0.5`."""
        return f"foreign balanced {self.focus:g}"
