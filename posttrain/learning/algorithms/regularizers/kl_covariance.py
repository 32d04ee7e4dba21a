"""Tokens that take most entropy away are held where they were before the step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics

_ROUNDING = 1e-5
"""Nats by which one policy differs between passes of different shapes; |d| has a slope of 1 there.
"""


class KlCovarianceRegularizer(Regularizer):
    """Add `|log(p / p_old)|` at the tokens of highest covariance: KL-Cov.

    A token's covariance is `(A - mean A) (log p - mean log p)`, with means over the generation's
    drawn tokens and p of what sampled. In a step's first update p is p_old, and there is nothing to
    pull back: it acts from the second one on.
    """

    SOURCE = (
        "KL-Cov, arXiv 2505.22617; PRIME-RL/Entropy-Mechanism-of-RL at 8850579,"
        " verl/trainer/ppo/core_algos.py (compute_policy_loss_kl_cov)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"generation_logprobs"})
    MARKS: ClassVar[bool] = True
    METRICS: ClassVar[Mapping[str, str]] = {
        "covariance_marked": "share of the drawn tokens that are held to where they were",
        "covariance_moved": "how far these moved since, in nats, averaged over all drawn tokens",
    }

    kind: Literal["kl_covariance"] = "kl_covariance"
    """Tokens of the highest covariance of advantage and log-probability may not move far."""
    share: float = Field(default=0.002, gt=0.0, le=1.0)
    """Of the generation's drawn tokens, those of the highest covariance; at least one."""

    def marks(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Mark the tokens of highest covariance; see `Regularizer.marks`."""
        from posttrain.learning.maths.covariance import joint_deviations

        what = "regularizer kl_covariance"
        mask_BT = needed(rollouts.mask_BT, "mask_BT", what).bool()
        logprobs_BT = needed(rollouts.sampled_logprobs_BT, "sampled_logprobs_BT", what)
        found_BT = joint_deviations(advantages_BT, logprobs_BT, mask_BT)
        num_marked = max(1, int(self.share * int(mask_BT.sum()) + 1e-9))
        # Tokens at the border are marked together: two answers that begin alike are alike there.
        least = found_BT.flatten().topk(num_marked).values[-1]
        return (mask_BT & (found_BT >= least)).to(logprobs_BT.dtype)

    def loss(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002
        *,
        log_ratio_BT: "Tensor",
        entropy_BT: "Tensor | None",  # noqa: ARG002
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add the distance to the old policy at the marks; see `Regularizer.loss`."""
        import torch

        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        marked_BT = needed(batch.mark_BT, "mark_BT", "regularizer kl_covariance") > 0
        moved_BT = (log_ratio_BT.abs() - _ROUNDING).clamp(min=0.0)
        moved_BT = torch.where(marked_BT, moved_BT, 0.0)
        cost = aggregate(
            moved_BT, share.mask_BT, aggregation=share.aggregation, denominator=share.denominator
        )
        metrics = {
            "covariance_marked": masked_mean(marked_BT.to(moved_BT.dtype), share.mask_BT),
            "covariance_moved": masked_mean(moved_BT, share.mask_BT),
        }
        return self.coefficient * cost, detached(metrics)

    def describe(self) -> str:
        """`0.2% of highest covariance held 1`."""
        return f"{self.share:.1%} of highest covariance held {self.coefficient:g}"
