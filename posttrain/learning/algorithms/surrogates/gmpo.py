"""One number per sequence: the geometric mean of its tokens' bounded ratios."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.part import AlgorithmFacts
from posttrain.learning.algorithms.surrogates.base import Surrogate

if TYPE_CHECKING:
    from torch import Tensor


class GmpoSurrogate(Surrogate):
    """`-A exp(mean of bounded log-ratios)`: one number per sequence.

    As in PPO only the harmful side is bounded: above for a positive advantage, below for a negative
    one. Each drawn token carries the loss of its sequence, so the advantage must be the same at all
    of them, and the aggregation `sequence_mean_token_mean`.
    """

    SOURCE = "Geometric-Mean Policy Optimization, arXiv 2507.20673"

    kind: Literal["gmpo"] = "gmpo"
    """Geometric-mean policy optimization."""
    log_low: float = Field(default=0.4, ge=0.0)
    """How far below 0 a bad token's log-ratio counts."""
    log_high: float = Field(default=0.4, ge=0.0)
    """How far above 0 a good token's log-ratio counts."""

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Spread each sequence's loss over its tokens; see `Surrogate.token_loss`."""
        import torch

        from posttrain.learning.maths.ratios import bounded_ratio
        from posttrain.learning.maths.reduce import masked_mean

        kept_BT = torch.where(
            batch.advantages_BT > 0,
            log_ratio_BT.clamp(max=self.log_high),
            log_ratio_BT.clamp(min=-self.log_low),
        )
        ratio_B = bounded_ratio(masked_mean(kept_BT, batch.mask_BT, -1))
        loss_BT = -batch.advantages_BT.expand_as(kept_BT) * ratio_B.unsqueeze(-1)
        return TokenLoss(loss_BT, kept_BT != log_ratio_BT)

    def describe(self) -> str:
        """`gmpo -0.4 +0.4`."""
        return f"gmpo -{self.log_low:g} +{self.log_high:g}"

    def refusal(self, algorithm: AlgorithmFacts) -> str | None:
        """Sequences must have one advantage each, and count alike."""
        if algorithm.aggregation != "sequence_mean_token_mean":
            return (
                "surrogate gmpo has one loss per sequence;"
                " set aggregation.kind to sequence_mean_token_mean"
            )
        if algorithm.varies_within_rollouts:
            return (
                "surrogate gmpo needs one advantage per sequence; take advantage group, and an"
                " entropy or kl in the loss, or another surrogate"
            )
        return None
