"""Importance weights of the old policy against the engine."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor

# Which ends each bound has: (low, high).
_ENDS = {
    "none": (False, False),
    "truncate": (False, True),
    "clamp": (True, True),
    "mask": (True, True),
}


class ImportanceWeight(TokenWeight):
    """Importance weights `old / engine`, bounded, on the loss of each token.

    With `old_policy` interpolated and a clip this is decoupled PPO (AReaL, arXiv 2505.24298).
    """

    SOURCE = "Ionides 2008; mask: IcePop, arXiv 2510.18855; decoupled: arXiv 2110.00641"
    COMPARES_POLICIES: ClassVar[bool] = True
    CORRECTS_ENGINE: ClassVar[bool] = True

    kind: Literal["importance"] = "importance"
    """The ratio itself is the weight."""
    bound: Literal["none", "truncate", "clamp", "mask"] = "truncate"
    """Unbounded, cut at `high`, held within `[low, high]`, or 0 outside of it."""
    level: Literal["token", "sequence_mean", "sequence_sum"] = "token"
    """Whose ratio: a token's, the geometric mean of a sequence, or its product."""
    low: float | None = Field(default=None, ge=0.0, le=1.0)
    """Lower end, for `clamp` and `mask`."""
    high: float | None = Field(default=None, ge=1.0)
    """Upper end, for all but `none`."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        for name, wanted in zip(("low", "high"), _ENDS[self.bound], strict=True):
            given = self.low if name == "low" else self.high
            if wanted != (given is not None):
                verb, remedy = ("needs", "set it") if wanted else ("has no", "leave it out")
                raise ValueError(f"bound {self.bound} {verb} {name}; {remedy}")
        return self

    def of_update(
        self, logprobs_BT: "Tensor", *, old_logprobs_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor | None":
        """Give the bounded ratio; see `TokenWeight.of_update`."""
        from posttrain.learning.maths.correction import importance_weights
        from posttrain.learning.maths.ratios import log_ratio

        ratio_BT = log_ratio(
            old_logprobs_BT, batch.sampled_logprobs_BT, mask_BT=batch.mask_BT, level=self.level
        )
        low = 0.0 if self.low is None else self.low
        high = float("inf") if self.high is None else self.high
        return importance_weights(ratio_BT, bound=self.bound, low=low, high=high)

    def describe(self) -> str:
        """`truncate token weights`."""
        return f"{self.bound} {self.level} weights"
