"""The outcome as a label, predicted by how much likelier the policy made the rollout."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.surrogates.base import SequenceSurrogate, mean_of_others

if TYPE_CHECKING:
    from torch import Tensor


class OutcomeLabelSurrogate(SequenceSurrogate):
    """Cross-entropy of `sigmoid(s_i - mean of the other s)` with whether rollout i is right.

    The score is `s = beta l`, l the log-ratio of the whole sequence to the old policy, so a group
    goes through the model together and its gradient reaches every score. Right and wrong ones of a
    group are weighed to count alike. For an advantage that is the reward itself.
    """

    SOURCE = (
        "PACS, arXiv 2509.02522, equations 5 to 7; ritzz-ai/PACS at 4c987b4, pacs_core_algos.py"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"whole_groups"})
    LABELS: ClassVar[bool] = True

    kind: Literal["outcome_label"] = "outcome_label"
    """The policy's own scores predict which rollouts are right."""
    beta: float = Field(default=1.0, gt=0.0)
    """Of the log-ratio in the score."""
    balanced: bool = True
    """Weigh right and wrong rollouts of a group by `size / (2 x their number)`."""

    def sequence_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor":
        """Predict each rollout's outcome; see `SequenceSurrogate.sequence_loss`."""
        from torch.nn import functional as F

        from posttrain.learning.maths.reduce import masked_sum

        group_B = needed(batch.group_B, "group_B", "surrogate outcome_label")
        score_B = self.beta * masked_sum(log_ratio_BT, batch.mask_BT, -1)
        logit_B = score_B - mean_of_others(score_B, group_B)
        label_B = (batch.advantages_BT[:, 0] > 0).to(logit_B.dtype)
        weight_B = _balance(label_B, group_B) if self.balanced else None
        return F.binary_cross_entropy_with_logits(
            logit_B, label_B, weight=weight_B, reduction="none"
        )

    def describe(self) -> str:
        """`outcome_label 1`."""
        return f"outcome_label {self.beta:g}"


def _balance(label_B: "Tensor", group_B: "Tensor") -> "Tensor":
    """`size / (2 x number of those with the row's label)` of its group; 1 where all are alike."""
    import torch

    from posttrain.learning.maths.segments import dense_ids, segment_size, segment_sum

    index_B, num_groups = dense_ids(group_B)
    size_B = segment_size(index_B, num_groups)[index_B].to(label_B.dtype)
    right_B = segment_sum(label_B, index_B, num_groups)[index_B]
    same_B = torch.where(label_B > 0, right_B, size_B - right_B)
    return torch.where((right_B > 0) & (right_B < size_B), size_B / (2 * same_B), 1.0)
