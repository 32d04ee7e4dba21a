"""A bonus for entropy that is to stay near what it was so far."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class EntropyBandRegularizer(Regularizer):
    """A bonus for the exact entropy, less a penalty where a token's is far from its mean so far.

    The band is from `low` to `high` times the mean, over all earlier updates, of the mean entropy.

    `-coefficient (H - weight penalty (max(0, H - high M) + max(0, low M - H)))` a token, M the mean
    so far; by `token` the distance is 1 outside of the band.
    """

    SOURCE = "EPO, arXiv 2509.22576; WujiangXu/EPO at 5b6fa98, dp_actor.py"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"entropy_gradient"})
    METRICS: ClassVar[Mapping[str, str]] = {
        "band_entropy": "exact entropy of the policy at the drawn tokens, in nats",
        "band_outside": "share of the drawn tokens whose entropy is outside of the band",
    }
    FOLLOWS: ClassVar[str] = "band_entropy"

    kind: Literal["entropy_band"] = "entropy_band"
    """More entropy is better, but not much more or less than so far."""
    low: float = Field(default=0.8, ge=0.0)
    """Lower end of the band, as a share of the mean."""
    high: float = Field(default=1.2, gt=0.0)
    """Upper end."""
    penalty: float = Field(default=0.1, gt=0.0)
    """What a token outside of the band costs; per nat where that goes by the distance."""
    by: Literal["token", "distance"] = "distance"
    """A token outside costs the same wherever it is, which has no gradient; or it costs what it
    is away from the band."""
    weight: float = Field(default=1.0, ge=0.0)
    """Factor on the penalty, for a schedule."""

    def loss(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002
        *,
        log_ratio_BT: "Tensor",  # noqa: ARG002
        entropy_BT: "Tensor | None",
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add bonus and penalty; see `Regularizer.loss`. Metrics: those of `METRICS`."""
        import torch

        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        entropy_BT = needed(entropy_BT, "entropy_BT", "regularizer entropy_band")
        away_BT = torch.zeros_like(entropy_BT)
        if batch.past_2 is not None:
            usual = batch.past_2[1].to(entropy_BT.dtype)
            above_BT, below_BT = entropy_BT - self.high * usual, self.low * usual - entropy_BT
            away_BT = above_BT.clamp(min=0) + below_BT.clamp(min=0)
        outside_BT = (away_BT > 0).to(entropy_BT.dtype)
        cost_BT = away_BT if self.by == "distance" else outside_BT
        gain = aggregate(
            entropy_BT - self.weight * self.penalty * cost_BT,
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        measured = {
            "band_entropy": masked_mean(entropy_BT, share.mask_BT),
            "band_outside": masked_mean(outside_BT, share.mask_BT),
        }
        return -self.coefficient * gain, detached(measured)

    def describe(self) -> str:
        """`entropy 0.001 within 0.8 to 1.2 of so far`."""
        return f"entropy {self.coefficient:g} within {self.low:g} to {self.high:g} of so far"
