"""A policy gradient with a square pull to the old policy."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.surrogates.base import Surrogate, at_level, nothing_clipped

if TYPE_CHECKING:
    from torch import Tensor


class SquaredSurrogate(Surrogate):
    """`-A l + (tau / 2) l^2`, l the log-ratio: a policy gradient with a square pull to old.

    It is `(A - tau l)^2 / (2 tau)` without the constant; its least value is at `l = A / tau`. With
    l of level `sequence_sum` and A the reward less the mean of its group it is Kimi k1.5's;
    aggregate by `sequence_mean_token_mean` then. With level `token` it is the form that trainers
    of long rollouts use.
    """

    SOURCE = "Kimi k1.5, arXiv 2501.12599, section 2.3.2"

    kind: Literal["squared"] = "squared"
    """No clip; the square keeps the policy near the old one."""
    level: Literal["token", "sequence_mean", "sequence_sum"] = "sequence_sum"
    """Whose log-ratio."""
    tau: float = Field(gt=0.0)
    """Strength of the pull; the optimum of one rollout is at the log-ratio `A / tau`."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Pull back by the square; see `Surrogate.token_loss`."""
        level_BT = at_level(log_ratio_BT, batch.mask_BT, self.level)
        return nothing_clipped(-batch.advantages_BT * level_BT + self.tau / 2 * level_BT.square())

    def describe(self) -> str:
        """`squared sequence_sum 0.1`."""
        return f"squared {self.level} {self.tau:g}"
