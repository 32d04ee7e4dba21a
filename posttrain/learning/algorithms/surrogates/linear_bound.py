"""A lower bound of the importance-weighted advantage that is a sum over draws of a likelihood."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.algorithms.batches import PolicyBatch
from posttrain.learning.algorithms.surrogates.base import SequenceSurrogate

if TYPE_CHECKING:
    from torch import Tensor


class LinearBoundSurrogate(SequenceSurrogate):
    """`-A (1 + d)` where A > 0, else `-A e^d`; d is the mean log-ratio of a row's tokens.

    For rows that are draws j of one answer's likelihood it bounds `-A e^(mean_j d_j)` from above by
    a mean over draws: the tangent of the exponential where A > 0, Jensen's inequality where A < 0.
    Every draw is then a row of its own that needs no other one in memory. At d = 0 the value and
    the gradient are those of `-A e^d`.
    """

    SOURCE: ClassVar[str] = (
        "BGPO, arXiv 2510.11683, abstract; as in yjyddq/DARE at d0f6f66,"
        " verl/trainer/ppo/dllm_core_algos.py (compute_policy_loss_bgpo)"
    )

    kind: Literal["linear_bound"] = "linear_bound"
    """No clip: the bound itself is what holds a good answer back."""

    def sequence_loss(
        self,
        logprobs_BT: "Tensor",  # noqa: ARG002 - see the base
        log_ratio_BT: "Tensor",
        batch: PolicyBatch,
    ) -> "Tensor":
        """Take the tangent or the power; see `SequenceSurrogate.sequence_loss`."""
        import torch

        from posttrain.learning.maths.ratios import bounded_ratio
        from posttrain.learning.maths.reduce import masked_mean

        moved_B = masked_mean(log_ratio_BT, batch.mask_BT, -1)
        advantage_B = batch.advantages_BT[:, 0]
        bound_B = torch.where(advantage_B > 0, 1 + moved_B, bounded_ratio(moved_B))
        return -advantage_B * bound_B

    def describe(self) -> str:
        """`linear bound`."""
        return "linear bound"
