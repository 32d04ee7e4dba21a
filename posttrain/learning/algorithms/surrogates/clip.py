"""The clipped ratio of PPO, and its asymmetric, dual and sequence-level kin."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.surrogates.base import Surrogate, at_level

if TYPE_CHECKING:
    from torch import Tensor


class ClipSurrogate(Surrogate):
    """`max(-A r, -A clip(r, 1 - low, 1 + high))`: PPO, clip-higher, dual clip, GSPO.

    `low == high` is PPO; `high > low` is DAPO's clip-higher, 0.2 and 0.28 there; with the level
    `sequence_mean` or `sequence_token` it is GSPO, whose ranges are near 3e-4. `dual` bounds the
    loss of a negative advantage at `-dual A`, where a ratio that exploded would otherwise rule the
    step. At ratio 1 nothing is clipped, and the gradient is that of REINFORCE.
    """

    SOURCE = (
        "PPO, arXiv 1707.06347, equation 7; clip-higher: DAPO, arXiv 2503.14476; dual clip:"
        " arXiv 1912.09729; sequences: GSPO, arXiv 2507.18071"
    )

    kind: Literal["clip"] = "clip"
    """Tokens that a clip has caught have no gradient."""
    level: Literal["token", "sequence_mean", "sequence_token", "sequence_sum"] = "token"
    """Whose ratio: a token's, the geometric mean of a sequence (two gradients) or its product."""
    low: float = Field(default=0.2, ge=0.0, lt=1.0)
    """How far below 1 the ratio counts."""
    high: float = Field(default=0.28, ge=0.0)
    """How far above 1; higher than `low` keeps rare good tokens alive, lower holds them back."""
    dual: float | None = Field(default=None, gt=1.0)
    """Bound of the loss of a bad token, in advantages; none leaves it unbounded."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.dual is not None and self.dual <= 1 + self.high:
            raise ValueError(
                f"dual {self.dual} lies inside the clip range, which ends at {1 + self.high:g};"
                " take a larger dual (often 3), or leave it out"
            )
        return self

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Take the worse of the plain and the clipped branch; see `Surrogate.token_loss`."""
        import torch

        from posttrain.learning.maths.ratios import bounded_ratio

        ratio_BT = bounded_ratio(at_level(log_ratio_BT, batch.mask_BT, self.level))
        plain_BT = -batch.advantages_BT * ratio_BT
        bounded_BT = -batch.advantages_BT * ratio_BT.clamp(1 - self.low, 1 + self.high)
        # Clipped is where the clipped branch is the larger one: the gradient there is exactly 0.
        clipped_BT = bounded_BT > plain_BT
        loss_BT = torch.maximum(plain_BT, bounded_BT)
        if self.dual is None:
            return TokenLoss(loss_BT, clipped_BT)
        ceiling_BT = torch.where(
            batch.advantages_BT < 0, -self.dual * batch.advantages_BT, torch.inf
        )
        return TokenLoss(torch.minimum(loss_BT, ceiling_BT), clipped_BT | (loss_BT > ceiling_BT))

    def describe(self) -> str:
        """`clip token -0.2 +0.28`."""
        dual = "" if self.dual is None else f" dual {self.dual:g}"
        return f"clip {self.level} -{self.low:g} +{self.high:g}{dual}"
