"""A pull towards a teacher by its whole distributions, on what the policy drew itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class DistillationRegularizer(Regularizer):
    """The divergence of the policy's next-token distribution from the reference's, a drawn token.

    `coefficient D(teacher, policy)` over the whole vocabulary, added to the loss; the teacher is
    the stage's `reference`. Its gradient is exact for the places that were drawn, where `kl` has an
    estimate from the token drawn there; which places are drawn has none, as in GKD. With a teacher
    P and a policy Q:

    - `reverse_kl`: KL(Q || P), keeps to what the teacher does.
    - `forward_kl`: KL(P || Q), covers what the teacher does.
    - `jensen_shannon`: `w KL(P || M) + (1 - w) KL(Q || M)` with `M = w P + (1 - w) Q`.
    - `skew_forward_kl`: KL(P || w P + (1 - w) Q).
    - `skew_reverse_kl`: KL(Q || (1 - w) P + w Q).
    """

    SOURCE = (
        "GKD, arXiv 2306.13649, equation 1 and algorithm 1 with lambda 1; huggingface/trl at"
        " 054a0da, experimental/gkd/gkd_trainer.py; skew: DistiLLM, arXiv 2402.03898"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference_divergence"})
    METRICS: ClassVar[Mapping[str, str]] = {
        "distillation": "divergence from the teacher over the vocabulary, in nats per token",
    }

    kind: Literal["distillation"] = "distillation"
    """Be like a teacher, by all that it says of every token."""
    divergence: Literal[
        "reverse_kl", "forward_kl", "jensen_shannon", "skew_forward_kl", "skew_reverse_kl"
    ] = "reverse_kl"
    """Which divergence."""
    weight: float = Field(default=0.5, gt=0.0, lt=1.0)
    """The `w` of mixtures: GKD's beta, DistiLLM's alpha (0.1 there)."""

    def without_effect(self) -> frozenset[str]:
        """`weight` of a divergence without a mixture."""
        return frozenset({"weight"} if self.divergence in ("forward_kl", "reverse_kl") else ())

    def of_distributions(self, policy_NV: "Tensor", reference_NV: "Tensor") -> "Tensor":
        """Measure each token's; see `Regularizer.of_distributions`."""
        from posttrain.learning.maths.divergence import distilled

        return distilled(reference_NV, policy_NV, kind=self.divergence, weight=self.weight)

    def loss(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002 - of the tokens drawn alone
        *,
        log_ratio_BT: "Tensor",  # noqa: ARG002
        entropy_BT: "Tensor | None",  # noqa: ARG002
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add the divergence; see `Regularizer.loss`. Metric: `distillation`."""
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        divergence_BT = needed(batch.divergence_BT, "divergence_BT", "distillation")
        total = aggregate(
            divergence_BT,
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        measured = {"distillation": masked_mean(divergence_BT, share.mask_BT)}
        return self.coefficient * total, detached(measured)

    def describe(self) -> str:
        """`distillation reverse_kl 1`."""
        return f"distillation {self.divergence} {self.coefficient:g}"
