"""A pull towards the reference that is weaker for right answers to hard problems."""

from collections.abc import Mapping
from math import e
from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.batches import PolicyBatch, RolloutBatch, needed
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.maths.reduce import Metrics


class KlByOutcomeRegularizer(Regularizer):
    """k3 of the divergence, times `1 - exp(-e s)` for rollouts that did better than their group.

    s is the share of the group's rollouts that are right (whose reward is at least `solved`); where
    all or none are, and for rollouts that did no better, the factor is 1.
    """

    SOURCE = (
        "APO, arXiv 2506.21655, difficulty-adaptive divergence shaping; Indolent-Kawhi/View-R1 at"
        " 093f2d8, ppo_actor.py (calculate_kl_weight)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference"})
    METRICS: ClassVar[Mapping[str, str]] = {
        "kl_by_outcome": "divergence from the reference in nats per token, as it is weighed",
    }
    MARKS: ClassVar[bool] = True

    kind: Literal["kl_by_outcome"] = "kl_by_outcome"
    """Successes and failures are held to the reference by themselves."""
    solved: float = 1.0
    """The reward from which on a rollout is right."""

    def marks(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":
        """Weigh each rollout by its group; see `Regularizer.marks`."""
        import torch

        from posttrain.learning.maths.segments import dense_ids, segment_size, segment_sum

        mask_BT = needed(rollouts.mask_BT, "mask_BT", "regularizer kl_by_outcome")
        index_B, groups = dense_ids(rollouts.group_B)
        right_B = (rollouts.rewards_B >= self.solved).double()
        size_B = segment_size(index_B, groups)[index_B]
        share_B = segment_sum(right_B, index_B, groups)[index_B] / size_B
        mixed_B = (share_B > 0) & (share_B < 1)
        eased_BT = mixed_B[:, None] & (advantages_BT > 0)
        found_BT = torch.where(eased_BT, 1.0 - (-e * share_B[:, None]).exp(), 1.0)
        return found_BT.expand_as(mask_BT)

    def loss(
        self,
        logprobs_BT: "Tensor",
        *,
        log_ratio_BT: "Tensor",  # noqa: ARG002
        entropy_BT: "Tensor | None",  # noqa: ARG002
        batch: PolicyBatch,
        share: BatchShare,
    ) -> "tuple[Tensor, Metrics] | None":
        """Add the weighed divergence; see `Regularizer.loss`. Metric: `kl_by_outcome`."""
        from posttrain.learning.maths.kl import kl_estimate
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        what = "regularizer kl_by_outcome"
        reference_BT = needed(batch.reference_logprobs_BT, "reference_logprobs_BT", what)
        weight_BT = needed(batch.mark_BT, "mark_BT", what)
        kl_BT = weight_BT * kl_estimate(logprobs_BT, reference_BT, estimator="k3", ceiling=None)
        cost = aggregate(
            kl_BT, share.mask_BT, aggregation=share.aggregation, denominator=share.denominator
        )
        return self.coefficient * cost, detached(
            {"kl_by_outcome": masked_mean(kl_BT, share.mask_BT)}
        )

    def describe(self) -> str:
        """`k3 0.001 by outcome`."""
        return f"k3 {self.coefficient:g} by outcome"
