"""How rollouts that another policy sampled are corrected: an older one, or an inexact engine."""

from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig

Level = Literal["token", "sequence_mean", "sequence_sum"]

# Which ends each bound has: (low, high).
_ENDS = {
    "none": (False, False),
    "truncate": (False, True),
    "clamp": (True, True),
    "mask": (True, True),
}


class Weights(StageConfig):
    """Importance weights `old / sampler` on the loss of each token, without gradient."""

    bound: Literal["none", "truncate", "clamp", "mask"] = "truncate"
    """Unbounded, cut at `high`, held within `[low, high]`, or 0 outside of it."""
    level: Level = "token"
    """Whose ratio: a token's, the geometric mean of a sequence, or its product."""
    low: float | None = Field(default=None, ge=0.0, le=1.0)
    """Lower end, for `clamp` and `mask`."""
    high: float | None = Field(default=None, ge=1.0)
    """Upper end, for all but `none`."""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        for name, wanted in zip(("low", "high"), _ENDS[self.bound], strict=True):
            given = self.low if name == "low" else self.high
            if wanted != (given is not None):
                verb, remedy = ("needs", "set it") if wanted else ("has no", "leave it out")
                raise ValueError(f"bound {self.bound} {verb} {name}; {remedy}")
        return self


class Band(StageConfig):
    """Rollouts or tokens whose ratio to the sampler is outside lose their loss altogether."""

    level: Level = "sequence_mean"
    """Whose ratio; the mean and the product drop whole rollouts."""
    low: float = Field(ge=0.0, le=1.0)
    """Least ratio that is kept."""
    high: float = Field(ge=1.0)
    """Largest ratio that is kept."""


class CorrectionConfig(StageConfig):
    """Which policy the ratio compares with, and what is done about the sampler."""

    old: Literal["sampler", "recomputed", "interpolated"] = "sampler"
    """Denominator of the ratio: the sampler's log-probabilities, the trainer's from before the
    update, or a point between sampler and current policy (decoupled PPO without a pass)."""
    weights: Weights | None = None
    """Importance weights of old against sampler; none leaves the difference alone."""
    band: Band | None = None
    """Filter on the ratio of old to sampler; none keeps everything."""
    max_drift: float | None = Field(default=None, gt=0.0)
    """Bad rollouts whose mean log-probability fell by more nats since sampling lose their loss."""

    @model_validator(mode="after")
    def _two_policies(self) -> Self:
        if self.old == "sampler" and (self.weights is not None or self.band is not None):
            raise ValueError(
                "weights and band compare the old policy with the sampler, but old is sampler,"
                " so all weights are 1; set old to recomputed or interpolated, or leave them out"
            )
        return self
