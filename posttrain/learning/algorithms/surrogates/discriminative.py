"""Right answers are scored above wrong ones, the better among them weighed more."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, needed
from posttrain.learning.algorithms.surrogates.base import SequenceSurrogate

if TYPE_CHECKING:
    from torch import Tensor


class DiscriminativeSurrogate(SequenceSurrogate):
    """`-sum_right w_i s_i / sum_right w + tau log mean_wrong exp(s / tau)` of each group.

    The score s is the mean log-probability of a rollout's tokens. A right rollout is one whose
    reward is above 0, with the weight `w = exp(reward / sharpness)`: what else a reward pays for,
    such as brevity, is compared among right rollouts alone, and can make none of them a bad one. A
    group without both kinds has no loss. It wants a limit on the distance from the old policy, such
    as regularizer `kl_limit`.
    """

    SOURCE = (
        "DRPO, arXiv 2510.04474, with the objective of DisCO, arXiv 2505.12366;"
        " Optimization-AI/DRPO at 74ffc8c, core_algos.py (compute_policy_loss_drpo)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"whole_groups"})
    LABELS: ClassVar[bool] = True
    PLAIN_AT_ONE: ClassVar[bool] = False

    kind: Literal["discriminative"] = "discriminative"
    """A ranking of right over wrong, within each problem."""
    tau: float = Field(default=10.0, gt=0.0)
    """How evenly wrong rollouts count; a small one looks at the likeliest alone."""
    sharpness: float | None = Field(default=None, gt=0.0)
    """Difference of rewards at which a right rollout counts e times as much; null counts all
    alike, which is DisCO."""

    def sequence_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> "Tensor":
        """Let every row of a group bear its group's loss; see `SequenceSurrogate.sequence_loss`."""
        import torch

        from posttrain.learning.maths.reduce import masked_mean
        from posttrain.learning.maths.segments import dense_ids, segment_sum

        group_B = needed(batch.group_B, "group_B", "surrogate discriminative")
        index_B, num_groups = dense_ids(group_B)
        score_B = masked_mean(logprobs_BT, batch.mask_BT, -1)
        reward_B = batch.advantages_BT[:, 0].to(score_B.dtype)
        right_B = reward_B > 0
        weight_B = right_B.to(score_B.dtype)
        if self.sharpness is not None:
            best_P = _greatest(reward_B, index_B, num_groups)
            weight_B = weight_B * ((reward_B - best_P[index_B]) / self.sharpness).exp()
        wrong_B = (~right_B).to(score_B.dtype)

        def of_groups(values_B: "Tensor") -> "Tensor":
            return segment_sum(values_B, index_B, num_groups)

        whole_P, wrong_P = of_groups(weight_B), of_groups(wrong_B)
        mixed_P = (whole_P > 0) & (wrong_P > 0)
        liked_P = of_groups(weight_B * score_B) / torch.where(mixed_P, whole_P, 1.0)
        wrong_score_B = torch.where(right_B, -torch.inf, score_B.detach())
        top_P = torch.where(mixed_P, _greatest(wrong_score_B, index_B, num_groups), 0.0)
        power_B = wrong_B * ((score_B - top_P[index_B]).clamp(max=0.0) / self.tau).exp()
        mean_P = torch.where(mixed_P, of_groups(power_B) / wrong_P.clamp(min=1), 1.0)
        return torch.where(mixed_P, self.tau * mean_P.log() + top_P - liked_P, 0.0)[index_B]

    def describe(self) -> str:
        """`discriminative 10 sharpness 0.1`."""
        sharp = "" if self.sharpness is None else f" sharpness {self.sharpness:g}"
        return f"discriminative {self.tau:g}{sharp}"


def _greatest(values_B: "Tensor", index_B: "Tensor", num_groups: int) -> "Tensor":
    """The largest value of each group, ``[P]``, from which exponents are measured."""
    import torch

    lowest_P = values_B.new_full((num_groups,), -torch.inf)
    return lowest_P.scatter_reduce(0, index_B, values_B, reduce="amax")
