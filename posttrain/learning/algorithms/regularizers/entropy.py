"""A bonus for an undecided policy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class EntropyRegularizer(Regularizer):
    """A bonus for an undecided policy, in nats.

    `coefficient (-log p)` of the drawn token, on its advantage, or `-coefficient H` in the loss.
    """

    SOURCE = "Williams 1992: -log p as a reward has the entropy's gradient; arXiv 1602.01783"

    METRICS: ClassVar[Mapping[str, str]] = {
        "entropy_exact": "exact entropy of the policy at the drawn tokens, in nats",
    }

    kind: Literal["entropy"] = "entropy"
    """More entropy is better."""
    place: Literal["advantage", "loss"] = "advantage"
    """Pay -log p of the token drawn, or add the exact entropy with its own gradient."""

    @property
    def needs(self) -> frozenset[str]:
        """The exact entropy, where it is in the loss."""
        return frozenset({"entropy_gradient"} if self.place == "loss" else ())

    @property
    def metrics(self) -> Mapping[str, str]:
        """The exact entropy, where it is in the loss."""
        return self.METRICS if self.place == "loss" else {}

    @property
    def changes_advantages(self) -> bool:
        """True where -log p is paid."""
        return self.place == "advantage"

    def advantage_bonus(self, old_logprobs_BT: "Tensor") -> "Tensor | None":
        """Pay -log p of the token drawn; see `Regularizer.advantage_bonus`."""
        # It has the entropy's gradient, as the score has mean 0.
        return -self.coefficient * old_logprobs_BT if self.changes_advantages else None

    def loss(
        self,
        logprobs_BT: "Tensor",
        *,
        log_ratio_BT: "Tensor",
        entropy_BT: "Tensor | None",
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add the exact entropy; see `Regularizer.loss`. Metric: `entropy_exact`."""
        if self.changes_advantages:
            return None
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        entropy_BT = needed(entropy_BT, "entropy_BT", "entropy in the loss")
        if logprobs_BT.requires_grad and not entropy_BT.requires_grad:
            raise ValueError("entropy_BT has no gradient, so a bonus for it would do nothing")
        bonus = aggregate(
            entropy_BT,
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        mean = masked_mean(entropy_BT, share.mask_BT)
        return -self.coefficient * bonus, detached({"entropy_exact": mean})

    def describe(self) -> str:
        """`entropy 0.01`."""
        return f"entropy {self.coefficient:g}"
