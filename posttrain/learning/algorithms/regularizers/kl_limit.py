"""A price for going further from the old policy than a limit, and nothing before it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class KlLimitRegularizer(Regularizer):
    """`coefficient / 2 x max(0, D - limit)^2`, D the divergence of the old policy from this one.

    D is the mean of `-log ratio` over the tokens of a group, whose rollouts go through the model
    together: so what is beyond the limit does not depend on micro-batches.
    """

    SOURCE = (
        "DisCO, arXiv 2505.12366, section 4.2 (squared hinge of the constraint);"
        " Optimization-AI/DRPO at 74ffc8c, core_algos.py"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"whole_groups"})

    METRICS: ClassVar[Mapping[str, str]] = {
        "beyond_limit": "share of the tokens whose group is beyond the limit",
    }

    kind: Literal["kl_limit"] = "kl_limit"
    """The old policy's divergence within bounds."""
    limit: float = Field(default=1e-4, ge=0.0)
    """Nats per token that cost nothing."""

    def loss(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002 - the ratio says it all
        *,
        log_ratio_BT: "Tensor",
        entropy_BT: "Tensor | None",  # noqa: ARG002
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Square what is beyond; see `Regularizer.loss`. Metric: `beyond_limit`."""
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean, masked_sum
        from posttrain.learning.maths.segments import dense_ids, segment_sum

        group_B = needed(batch.group_B, "group_B", "regularizer kl_limit")
        index_B, num_groups = dense_ids(group_B)
        behind_B = masked_sum(-log_ratio_BT, share.mask_BT, -1)
        tokens_B = share.mask_BT.bool().sum(-1)
        tokens_P = segment_sum(tokens_B, index_B, num_groups).clamp(min=1)
        apart_P = segment_sum(behind_B, index_B, num_groups) / tokens_P
        over_P = (apart_P - self.limit).clamp(min=0.0)
        over_BT = over_P[index_B].unsqueeze(-1).expand_as(log_ratio_BT)
        price = aggregate(
            over_BT.square() / 2,
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        beyond = masked_mean((over_BT > 0).to(log_ratio_BT.dtype), share.mask_BT)
        return self.coefficient * price, detached({"beyond_limit": beyond})

    def describe(self) -> str:
        """`kl_limit 0.0001 x 1000`."""
        return f"kl_limit {self.limit:g} x {self.coefficient:g}"
