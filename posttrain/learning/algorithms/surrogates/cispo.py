"""The ratio as a bounded weight on the plain policy gradient."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.batches import PolicyBatch, TokenLoss
from posttrain.learning.algorithms.surrogates.base import Surrogate, at_level

if TYPE_CHECKING:
    from torch import Tensor

_BEYOND = 1e3
"""No ratio of a policy to the one before it comes here: such a cap stands for none."""


class CispoSurrogate(Surrogate):
    """`-stop_gradient(bounded r) A log p`: the ratio is a weight; every token keeps a gradient.

    Three bounds are in use under this one name:

    ============ ============================== =====================================
    bound        weight                         where
    ============ ============================== =====================================
    two_sided    clip(r, 1 - low, 1 + high)     the paper; verl, slime, SkyRL
    upper        min(r, 1 + high)               open-instruct
    cap          min(r, high), high e.g. 5      TRL, ScaleRL (arXiv 2510.13786)
    ============ ============================== =====================================
    """

    SOURCE = "MiniMax-M1, arXiv 2506.13585"

    kind: Literal["cispo"] = "cispo"
    """The bounded ratio multiplies the plain policy gradient."""
    level: Literal["token", "sequence_mean", "sequence_sum"] = "token"
    """Whose ratio."""
    bound: Literal["two_sided", "upper", "cap"] = "two_sided"
    """`[1 - low, 1 + high]`, at most `1 + high`, or at most `high`: three uses of one name."""
    low: float | None = Field(default=None, ge=0.0, lt=1.0)
    """How far below 1 the weight may be; with `two_sided` only."""
    high: float = Field(default=0.28, gt=0.0)
    """How far above 1 it may be, or with `cap` its largest value."""

    @property
    def BOUNDS(self) -> bool:  # type: ignore[override]  # noqa: N802 - a fact of its numbers
        """Whether a ratio comes to the bound; see `Surrogate`."""
        return self.bound != "cap" or self.high < _BEYOND

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.low is None) == (self.bound == "two_sided"):
            raise ValueError(
                "bound two_sided needs a low, and the other bounds have none;"
                " set low with two_sided, else leave it out"
            )
        return self

    def token_loss(
        self, logprobs_BT: "Tensor", log_ratio_BT: "Tensor", batch: PolicyBatch
    ) -> TokenLoss:
        """Weigh the plain policy gradient; see `Surrogate.token_loss`."""
        from posttrain.learning.maths.ratios import bounded_ratio

        ratio_BT = bounded_ratio(at_level(log_ratio_BT, batch.mask_BT, self.level).detach())
        lower = 0.0 if self.low is None else 1 - self.low
        weight_BT = ratio_BT.clamp(lower, self.high if self.bound == "cap" else 1 + self.high)
        return TokenLoss(-weight_BT * batch.advantages_BT * logprobs_BT, weight_BT != ratio_BT)

    def describe(self) -> str:
        """`cispo token upper 0.2`."""
        low = "" if self.low is None else f"-{self.low:g} "
        return f"cispo {self.level} {self.bound} {low}{self.high:g}"
