"""A gate that fades smoothly where PPO cuts off."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.surrogates.base import Surrogate, at_level, nothing_clipped

if TYPE_CHECKING:
    from torch import Tensor


class SapoSurrogate(Surrogate):
    """`-A (4 / tau) sigmoid(tau (r - 1))`: a gate that fades where PPO cuts off.

    Soft adaptive policy optimization; its temperatures are 1.0 for positive advantages and 1.05 for
    the others. The gradient at ratio 1 is that of REINFORCE. Not to be mixed up with SAPO, swarm
    sampling.
    """

    SOURCE = "arXiv 2511.20347"

    kind: Literal["sapo"] = "sapo"
    """Soft adaptive policy optimization."""
    level: Literal["token", "sequence_mean", "sequence_token"] = "token"
    """Whose ratio."""
    positive_tau: float = Field(default=1.0, gt=0.0)
    """Temperature of the gate for good tokens."""
    negative_tau: float = Field(default=1.05, gt=0.0)
    """Temperature for bad ones; a larger one fades sooner."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Gate the ratio; see `Surrogate.token_loss`."""
        import torch

        from posttrain.learning.maths.ratios import bounded_ratio

        ratio_BT = bounded_ratio(at_level(log_ratio_BT, batch.mask_BT, self.level))
        tau_BT = torch.where(batch.advantages_BT > 0, self.positive_tau, self.negative_tau)
        gate_BT = torch.sigmoid(tau_BT * (ratio_BT - 1)) * 4 / tau_BT
        return nothing_clipped(-batch.advantages_BT * gate_BT)

    def describe(self) -> str:
        """`sapo token 1 1.05`."""
        return f"sapo {self.level} {self.positive_tau:g} {self.negative_tau:g}"
