"""A filter on bad rollouts that the policy has already left."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


class DriftWeight(TokenWeight):
    """Bad rollouts whose mean log-probability fell too far since sampling lose their loss.

    0 where `A < 0` and `mean_t log(p_sampled / p) > threshold`, else 1.
    """

    SOURCE = "off-policy sequence masking of DeepSeek-V3.2, arXiv 2512.02556"

    kind: Literal["drift"] = "drift"
    """0 for tokens of a negative advantage in a rollout that was left, else 1."""
    threshold: float = Field(gt=0.0)
    """Nats per token that the rollout's log-probability may fall, on average."""

    def of_update(
        self, logprobs_BT: "Tensor", *, old_logprobs_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor | None":
        """Drop bad rollouts that were left; see `TokenWeight.of_update`."""
        from posttrain.learning.maths.ratios import log_ratio
        from posttrain.learning.maths.reduce import masked_mean

        mask_BT = batch.mask_BT
        drift_BT = log_ratio(logprobs_BT, batch.sampled_logprobs_BT, mask_BT=mask_BT, level="token")
        drift_B = masked_mean(-drift_BT, mask_BT, -1)
        kept_BT = (batch.advantages_BT >= 0) | (drift_B <= self.threshold).unsqueeze(-1)
        return kept_BT.expand_as(mask_BT)

    def describe(self) -> str:
        """`drift 0.1`."""
        return f"drift {self.threshold:g}"
