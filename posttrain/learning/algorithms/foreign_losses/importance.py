"""Foreign tokens by the probabilities that their author gave them."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import needed
from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.algorithms.batches import PolicyBatch


class Importance(ForeignLoss):
    """`-A (1 - p)^focus min(w, most)`, w the importance weight by the author's probability q.

    Against the author alone it is `w = p / q`; against both, author and policy of before,
    `w = 2 p / (p_old + q)`, which stays below `2 p / p_old` however unlikely the author found its
    own token. Where it is cut off no gradient flows. The factor `(1 - p)^focus`, without gradient,
    puts first what the policy would hardly say.
    """

    SOURCE = (
        "RL-PLUS, arXiv 2508.00222, equations 4 to 7 with a known behavior policy;"
        " YihongDong/RL-PLUS at 13318ff, rl_plus/verl/verl/recipe/rlplus_core_alg.py"
        " (compute_token_on_off_policy_loss: target_probs, off_max_clip); LUFFY, arXiv 2504.14945"
    )
    ASKS_AUTHORS: ClassVar[bool] = True

    kind: Literal["importance"] = "importance"
    against: Literal["author", "both"] = "both"
    """Whose probabilities the policy's are divided by."""
    most: float | None = Field(default=None, gt=0.0)
    """Where the weight is cut off; null leaves it."""
    focus: float = Field(default=0.0, ge=0.0)
    """How much less a likely token counts; 0 leaves the advantages as they are."""
    gamma: float = Field(default=0.0, ge=0.0)
    """Shapes the weight to `w / (w + gamma)`, so that unlikely tokens count for more; 0 leaves it.
    """

    def batch_loss(self, logprobs_BT: "Tensor", batch: "PolicyBatch") -> "Tensor":
        """Weigh by who wrote a token; see `ForeignLoss.batch_loss`."""
        author_BT = needed(batch.author_logprobs_BT, "author_logprobs_BT", "foreign importance")
        probs_BT = logprobs_BT.exp()
        if self.against == "author":
            weight_BT = (logprobs_BT - author_BT).exp()
        else:
            weight_BT = 2 * probs_BT / (batch.sampled_logprobs_BT.exp() + author_BT.exp())
        if self.gamma:
            weight_BT = weight_BT / (weight_BT + self.gamma)
        if self.most is not None:
            weight_BT = weight_BT.clamp(max=self.most)
        # At 1 the power of a number that rounding made negative would be none.
        found_BT = (1 - probs_BT.detach()).clamp(min=0) ** self.focus
        return -batch.advantages_BT * found_BT * weight_BT

    def describe(self) -> str:
        """`foreign importance both at most 10`."""
        cut = "" if self.most is None else f" at most {self.most:g}"
        return f"foreign importance {self.against}{cut}"
