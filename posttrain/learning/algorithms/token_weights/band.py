"""A filter on the ratio of the old policy to the engine."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


class BandWeight(TokenWeight):
    """Rollouts or tokens whose ratio to the engine is outside lose their loss altogether.

    1 where `low <= ratio <= high`, else 0; by `level` the ratio is a token's, or the geometric mean
    or the product over a rollout.
    """

    SOURCE = (
        "volcengine/verl at 0b4e2a8, verl/trainer/ppo/rollout_corr_helper.py"
        " (compute_rollout_rejection_mask)"
    )
    COMPARES_POLICIES: ClassVar[bool] = True

    kind: Literal["band"] = "band"
    """1 inside, 0 outside."""
    level: Literal["token", "sequence_mean", "sequence_sum"] = "sequence_mean"
    """Whose ratio; the mean and the product drop whole rollouts."""
    low: float = Field(ge=0.0, le=1.0)
    """Least ratio that is kept."""
    high: float = Field(ge=1.0)
    """Largest ratio that is kept."""

    def of_update(
        self, logprobs_BT: "Tensor", *, old_logprobs_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor | None":
        """Keep what lies inside; see `TokenWeight.of_update`."""
        from posttrain.learning.maths.correction import within_band
        from posttrain.learning.maths.ratios import log_ratio

        ratio_BT = log_ratio(
            old_logprobs_BT, batch.sampled_logprobs_BT, mask_BT=batch.mask_BT, level=self.level
        )
        return within_band(ratio_BT, low=self.low, high=self.high)

    def describe(self) -> str:
        """`band sequence_mean 0.5 2`."""
        return f"band {self.level} {self.low:g} {self.high:g}"
