"""Rewards less what they cost in log-ratio, made equal between any two rollouts of a problem."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.surrogates.base import SequenceSurrogate, mean_of_others

if TYPE_CHECKING:
    from torch import Tensor


class ContrastiveSurrogate(SequenceSurrogate):
    """`(R_i - R_j)^2 / (2 beta)` over the pairs of a group, `R = r - beta log(pi / pi_ref)`.

    Each rollout's baseline is the regularized reward of the other, which makes the gradient right
    whoever drew the two: there is no ratio to what sampled. It is 0 where `pi` is the reference
    tilted by `exp(r / beta)`. Of two rollouts with rewards of +-1/4 it is IPO, up to a factor; on
    policy it is twice the gradient of RLOO with the divergence in the reward.
    """

    SOURCE = "Contrastive Policy Gradient, arXiv 2406.19185, sections 3 and 4"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference", "whole_groups"})
    PLAIN_AT_ONE: ClassVar[bool] = False

    kind: Literal["contrastive"] = "contrastive"
    """Every rollout is held against every other of its group."""
    beta: float = Field(default=0.1, gt=0.0)
    """Of the log-ratio to the reference, whole sequences in nats."""

    def sequence_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor":
        """Share a group's mean over its pairs out; see `SequenceSurrogate.sequence_loss`."""
        # A row bears the mean square of its differences from the others: over a group of n that is
        # the mean over its pairs, n times.
        from posttrain.learning.maths.reduce import masked_sum

        what = "surrogate contrastive"
        reference_BT = needed(batch.reference_logprobs_BT, "reference_logprobs_BT", what)
        group_B = needed(batch.group_B, "group_B", what)
        tilt_B = masked_sum(logprobs_BT - reference_BT, batch.mask_BT, -1)
        paid_B = batch.advantages_BT[:, 0] - self.beta * tilt_B
        # Mean over j of (x_i - x_j)^2, in numbers that are small: x less the mean of all.
        centered_B = _less_mean(paid_B, group_B)
        mean_B = mean_of_others(centered_B, group_B)
        square_B = mean_of_others(centered_B.square(), group_B)
        apart_B = centered_B.square() - 2 * centered_B * mean_B + square_B
        return apart_B / (2 * self.beta)

    def describe(self) -> str:
        """`contrastive 0.1`."""
        return f"contrastive {self.beta:g}"


def _less_mean(values_B: "Tensor", group_B: "Tensor") -> "Tensor":
    """Shift each group to mean 0; differences, and so their gradients, stay as they are."""
    from posttrain.learning.maths.segments import dense_ids, segment_size, segment_sum

    index_B, num_groups = dense_ids(group_B)
    size_P = segment_size(index_B, num_groups)
    return values_B - (segment_sum(values_B.detach(), index_B, num_groups) / size_P)[index_B]
