"""Entropy that is held where it began, among likely tokens at undecided places alone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class NucleusEntropyRegularizer(Regularizer):
    """`(H - H_1)^2`: H over the nucleus of `top_p`, at the `share` of tokens where it is highest.

    H_1 is what it was in the run's first update. Rank, mean and square are of a micro-batch.
    """

    SOURCE = "SIREN, arXiv 2509.25133; Linn3a/siren at fa59a8d, verl/verl/workers/actor/dp_actor.py"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"distribution"})
    METRICS: ClassVar[Mapping[str, str]] = {
        "nucleus_entropy": "mean entropy of the nucleus at the tokens where it is highest, in nats",
    }
    FOLLOWS: ClassVar[str] = "nucleus_entropy"

    kind: Literal["nucleus_entropy"] = "nucleus_entropy"
    """Entropy is to stay what it was at first, where and among what it matters."""
    top_p: float = Field(default=0.8, gt=0.0, le=1.0)
    """Least probability of the likeliest tokens that make up the nucleus."""
    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Of the drawn tokens, those with the highest entropy."""

    def loss(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002
        *,
        log_ratio_BT: "Tensor",  # noqa: ARG002
        entropy_BT: "Tensor | None",  # noqa: ARG002 - of the whole vocabulary
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add the square of the change; see `Regularizer.loss`. Metric: `nucleus_entropy`."""
        import torch

        from posttrain.learning.maths.entropy import nucleus_entropy
        from posttrain.learning.maths.reduce import aggregate, detached

        log_all_NV = needed(batch.log_all_NV, "log_all_NV", "regularizer nucleus_entropy")
        entropy_N = nucleus_entropy(log_all_NV, top_p=self.top_p)
        threshold = entropy_N.detach().quantile(1.0 - self.share)
        mean = entropy_N[entropy_N.detach() >= threshold].mean()
        first = mean.detach() if batch.past_2 is None else batch.past_2[0].to(mean.dtype)
        # A micro-batch counts by its part of the whole batch.
        part = aggregate(
            torch.ones_like(share.mask_BT, dtype=mean.dtype),
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        loss = self.coefficient * part * (mean - first).square()
        return loss, detached({"nucleus_entropy": mean})

    def describe(self) -> str:
        """`nucleus entropy held 0.005`."""
        return f"nucleus entropy held {self.coefficient:g}"
