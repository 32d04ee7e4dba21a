"""The wrong answers teach through the policy of right ones that they imply."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss, needed
from posttrain.learning.algorithms.part import AlgorithmFacts
from posttrain.learning.algorithms.surrogates.base import Surrogate, refuse_baseline

if TYPE_CHECKING:
    from torch import Tensor

_LEAST_RATE, _LARGEST_LOG_RATIO = 0.02, 10.0


class ImplicitNegativeSurrogate(Surrogate):
    """`-log R` of right tokens, `-log max((1 - q R) / (1 - q), floor)` of wrong ones.

    R is the ratio to the old policy, q the mean reward of the group: the old policy is a mixture of
    one of right answers and one of wrong ones, and the second is written in terms of the first. The
    gradient passes the floor. A group is weighed by how hard it is, and one of equal rewards is
    left out. On policy, with the weight `deviation`, the gradient is GRPO's. For rewards of 0 and
    1, and an advantage that is the reward itself.
    """

    SOURCE = (
        "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning, arXiv"
        " 2505.18116, equation 8; NVlabs/NFT at b358fae, dp_actor.py"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"group_statistics"})

    kind: Literal["implicit_negative"] = "implicit_negative"
    """Negative-aware fine-tuning, as a loss of a step's rollouts."""
    floor: float = Field(default=1.0, gt=0.0)
    """Least argument of the wrong tokens' logarithm; 1 in the authors' scripts."""
    negative_weight: float = Field(default=1.0, ge=0.0)
    """Weight of wrong rollouts; 0 is fine-tuning by rejection sampling."""
    group_weight: Literal["none", "failures", "deviation"] = "failures"
    """Of a group: 1, `1 - q` (Dr.GRPO's), or `sqrt((1 - q) / q)` (GRPO's)."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Take one term or the other by the rollout; see `Surrogate.token_loss`."""
        import torch

        mean_B = needed(batch.group_mean_B, "group_mean_B", "surrogate implicit_negative")
        deviation_B = needed(batch.group_deviation_B, "group_deviation_B", "implicit_negative")
        rate_B1 = mean_B.clamp(_LEAST_RATE, 1 - _LEAST_RATE).unsqueeze(-1)
        bounded_BT = log_ratio_BT.clamp(max=_LARGEST_LOG_RATIO)
        implied_BT = (1 - rate_B1 * bounded_BT.exp()) / (1 - rate_B1)
        # The value is held, and the gradient passes as if it were not.
        held_BT = implied_BT + (implied_BT.clamp(min=self.floor) - implied_BT).detach()
        right_BT = (batch.advantages_BT > 0).expand_as(log_ratio_BT)
        loss_BT = torch.where(right_BT, -bounded_BT, -self.negative_weight * held_BT.log())
        weight_B1 = {
            "none": torch.ones_like(rate_B1),
            "failures": 1 - rate_B1,
            "deviation": ((1 - rate_B1) / rate_B1).sqrt(),
        }[self.group_weight]
        mixed_B1 = (deviation_B > 0).unsqueeze(-1)
        return TokenLoss(mixed_B1 * weight_B1 * loss_BT, ~right_BT & (implied_BT < self.floor))

    def describe(self) -> str:
        """`implicit_negative 1 by failures`."""
        return f"implicit_negative {self.floor:g} by {self.group_weight}"

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """A label is the reward's own sign."""
        return refuse_baseline(self.kind, algorithm)
