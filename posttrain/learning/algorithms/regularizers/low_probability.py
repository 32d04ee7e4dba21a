"""Unlikely tokens of bad rollouts that are kept from vanishing."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class LowProbabilityRegularizer(Regularizer):
    """Pull the least likely tokens of bad rollouts to a proxy: the policy without its noise.

    The proxy has the policy's tokens of at least `floor` times the likeliest one's probability, and
    no other. A token that it lacks is noise, and is not held.

    `coefficient k3(p, p / mass)` at the marked tokens, mass the policy's probability of all that
    the proxy has.
    """

    SOURCE = (
        "Lp-Reg, arXiv 2510.03222; CarlanLark/Lp-Reg-dev at 33b27e2, verl/trainer/ppo/core_algos.py"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"distribution", "generation_logprobs"})
    MARKS: ClassVar[bool] = True
    METRICS: ClassVar[Mapping[str, str]] = {
        "low_probability_held": "share of the drawn tokens that are pulled to the proxy",
    }

    kind: Literal["low_probability"] = "low_probability"
    """Unlikely tokens that are no noise are not punished away."""
    share: float = Field(default=0.01, gt=0.0, le=1.0)
    """Of the tokens with a negative advantage, the least likely."""
    floor: float = Field(default=0.02, gt=0.0, lt=1.0)
    """Least probability of a token of the proxy."""
    relative: bool = True
    """Whether `floor` is a share of the likeliest token's probability, or a probability itself."""
    ceiling: float = Field(default=10.0, gt=0.0)
    """Largest divergence that counts at a token."""

    def marks(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Mark the least likely tokens of bad rollouts; see `Regularizer.marks`."""
        import torch

        what = "regularizer low_probability"
        logprobs_BT = needed(rollouts.sampled_logprobs_BT, "sampled_logprobs_BT", what)
        bad_BT = needed(rollouts.mask_BT, "mask_BT", what).bool() & (advantages_BT < 0)
        num_marked = int(self.share * int(bad_BT.sum()))
        if num_marked == 0:
            return torch.zeros_like(logprobs_BT)
        threshold = logprobs_BT[bad_BT].kthvalue(num_marked).values
        return (bad_BT & (logprobs_BT <= threshold)).to(logprobs_BT.dtype)

    def loss(
        self,
        logprobs_BT: "Tensor",
        *,
        log_ratio_BT: "Tensor",  # noqa: ARG002
        entropy_BT: "Tensor | None",  # noqa: ARG002
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add k3 to the proxy; see `Regularizer.loss`. Metric: `low_probability_held`."""
        import torch

        from posttrain.learning.maths.kl import kl_estimate
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        mark_BT = needed(batch.mark_BT, "mark_BT", "regularizer low_probability")
        log_all_NV = needed(batch.log_all_NV, "log_all_NV", "regularizer low_probability").detach()
        mask_BT = share.mask_BT.bool()
        least_N = torch.full_like(log_all_NV[:, 0], self.floor).log()
        if self.relative:
            least_N = least_N + log_all_NV.amax(-1)
        kept_NV = torch.where(log_all_NV >= least_N[:, None], log_all_NV, -torch.inf)
        mass_BT = torch.zeros_like(logprobs_BT).masked_scatter(mask_BT, kept_NV.logsumexp(-1))
        least_BT = torch.zeros_like(logprobs_BT).masked_scatter(mask_BT, least_N)
        now_BT = logprobs_BT.detach()
        held_BT = (mark_BT > 0) & mask_BT & (now_BT >= least_BT) & (mass_BT < 0)
        kl_BT = kl_estimate(logprobs_BT, now_BT - mass_BT, estimator="k3", ceiling=self.ceiling)
        cost = aggregate(
            torch.where(held_BT, kl_BT, 0.0),
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        held = masked_mean(held_BT.to(logprobs_BT.dtype), share.mask_BT)
        return self.coefficient * cost, detached({"low_probability_held": held})

    def describe(self) -> str:
        """`1% least likely held 1`."""
        return f"{self.share:.0%} least likely held {self.coefficient:g}"
