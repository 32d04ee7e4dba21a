"""Wrong rollouts that took longer than the right ones of their problem are pushed back harder."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import RolloutBatch, needed
from posttrain.learning.algorithms.token_weights.base import TokenWeight

if TYPE_CHECKING:
    from torch import Tensor


class LongFailuresWeight(TokenWeight):
    """`2 - base^-d` for a wrong rollout d tokens above the mean of its group's right ones, else 1.

    A rollout whose reward is at least `solved` is right; a group without one leaves its rollouts
    as they are.
    """

    SOURCE = (
        "APO, arXiv 2506.21655, suboptimal trajectory complexity regularization;"
        " Indolent-Kawhi/View-R1 at 093f2d8, experience_maker.py (neg_diff_weights)"
    )

    kind: Literal["long_failures"] = "long_failures"
    """To think long is no fault, but to think longer than was needed, and be wrong."""
    base: float = Field(default=1.00001, gt=1.0)
    """How soon the weight nears 2: at d tokens it is `2 - base^-d`."""
    solved: float = 1.0
    """The reward from which on a rollout is right."""

    def of_generation(self, rollouts: RolloutBatch, advantages_BT: "Tensor") -> "Tensor | None":  # noqa: ARG002
        """Compare lengths within groups; see `TokenWeight.of_generation`. ``[B, 1]``."""
        import torch

        from posttrain.learning.maths.segments import dense_ids, segment_sum

        mask_BT = needed(rollouts.mask_BT, "mask_BT", "token weight long_failures")
        length_B = mask_BT.sum(-1).double()
        right_B = rollouts.rewards_B >= self.solved
        index_B, groups = dense_ids(rollouts.group_B)
        count_B = segment_sum(right_B.double(), index_B, groups)[index_B]
        usual_B = segment_sum(length_B * right_B, index_B, groups)[index_B] / count_B.clamp(min=1)
        above_B = torch.where(right_B | (count_B == 0), 0.0, (length_B - usual_B).clamp(min=0))
        return (2.0 - self.base**-above_B)[:, None]

    def describe(self) -> str:
        """`long failures 1.01`."""
        return f"long failures {self.base:g}"
