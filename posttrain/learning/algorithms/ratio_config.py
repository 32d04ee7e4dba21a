"""How the ratio to the old policy enters the loss: one model per surrogate."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig

_SWAP = "swap them, or set both to one value"


class ClipRatio(StageConfig):
    """`max(-A r, -A clip(r, 1 - low, 1 + high))`: PPO, clip-higher, dual clip, GSPO."""

    kind: Literal["clip"] = "clip"
    """Tokens that a clip has caught have no gradient."""
    level: Literal["token", "sequence_mean", "sequence_token", "sequence_sum"] = "token"
    """Whose ratio: a token's, the geometric mean of a sequence (two gradients) or its product."""
    low: float = Field(default=0.2, ge=0.0, lt=1.0)
    """How far below 1 the ratio counts."""
    high: float = Field(default=0.28, ge=0.0)
    """How far above 1; higher than `low` keeps rare good tokens alive."""
    dual: float | None = Field(default=None, gt=1.0)
    """Bound of the loss of a bad token, in advantages; none leaves it unbounded."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"clip low {self.low} exceeds clip high {self.high}; {_SWAP}")
        if self.dual is not None and self.dual <= 1 + self.high:
            raise ValueError(
                f"dual {self.dual} lies inside the clip range, which ends at {1 + self.high:g};"
                " take a larger dual (often 3), or leave it out"
            )
        return self


class CispoRatio(StageConfig):
    """`-stop_gradient(bounded r) A log p`: the ratio is a weight; every token keeps a gradient."""

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

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.low is None) == (self.bound == "two_sided"):
            raise ValueError(
                "bound two_sided needs a low, and the other bounds have none;"
                " set low with two_sided, else leave it out"
            )
        return self


class SapoRatio(StageConfig):
    """`-A (4 / tau) sigmoid(tau (r - 1))`: a gate that fades where PPO cuts off."""

    kind: Literal["sapo"] = "sapo"
    """Soft adaptive policy optimisation."""
    level: Literal["token", "sequence_mean", "sequence_token"] = "token"
    """Whose ratio."""
    positive_tau: float = Field(default=1.0, gt=0.0)
    """Temperature of the gate for good tokens."""
    negative_tau: float = Field(default=1.05, gt=0.0)
    """Temperature for bad ones; a larger one fades sooner."""


class GmpoRatio(StageConfig):
    """`-A exp(mean of bounded log-ratios)`: one number per sequence."""

    kind: Literal["gmpo"] = "gmpo"
    """Geometric-mean policy optimisation."""
    log_low: float = Field(default=0.4, ge=0.0)
    """How far below 0 a bad token's log-ratio counts."""
    log_high: float = Field(default=0.4, ge=0.0)
    """How far above 0 a good token's log-ratio counts."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.log_low > self.log_high:
            raise ValueError(f"log_low {self.log_low} exceeds log_high {self.log_high}; {_SWAP}")
        return self


class SquaredRatio(StageConfig):
    """`-A l + (tau / 2) l^2`, l the log-ratio: a policy gradient with a square pull to old."""

    kind: Literal["squared"] = "squared"
    """No clip; the square keeps the policy near the old one."""
    level: Literal["token", "sequence_mean", "sequence_sum"] = "sequence_sum"
    """Whose log-ratio."""
    tau: float = Field(gt=0.0)
    """Strength of the pull; the optimum of one rollout is at the log-ratio `A / tau`."""


class ReinforceRatio(StageConfig):
    """`-A log p`: no ratio at all, right for rollouts of the current policy."""

    kind: Literal["reinforce"] = "reinforce"
    """The plain policy gradient."""


RatioConfig = Annotated[
    ClipRatio | CispoRatio | SapoRatio | GmpoRatio | SquaredRatio | ReinforceRatio,
    Field(discriminator="kind"),
]
