"""How rewards become advantages: one model per estimator, chosen by `estimator`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig


class TurnCredit(StageConfig):
    """Advantages of the turns of a rollout, each compared with its like."""

    groups: Literal["turn", "state"] = "turn"
    """A turn is compared with the same turn of its group, or with turns from the same state."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount, per turn, of the rewards that follow a turn; 0 pays a turn its own reward only."""
    episode_weight: float = Field(default=0.0, ge=0.0)
    """Weight of the whole rollout's own advantage, added to those of its turns."""


class _Advantage(StageConfig):
    """What all estimators share; it is applied after them, in this order."""

    whiten: Literal["none", "sample", "population"] = "none"
    """Shift to mean 0 and scale to deviation 1 over the tokens of the batch."""
    whiten_epsilon: float = Field(default=1e-8, ge=0.0)
    """Added to the variance under the root; counts with `whiten` only."""
    positive_weight: float = Field(default=1.0, ge=0.0)
    """Factor on advantages above 0."""
    negative_weight: float = Field(default=1.0, ge=0.0)
    """Factor on advantages below 0."""
    truncated: Literal["keep", "mask", "drop"] = "keep"
    """Rollouts cut off at the limit of tokens: learn from them, bear no loss for them, or leave
    them out of the statistics too."""

    def without_effect(self) -> frozenset[str]:
        """`whiten_epsilon` without whitening."""
        return frozenset({"whiten_epsilon"} if self.whiten == "none" else ())

    @model_validator(mode="after")
    def _has_a_sign(self) -> Self:
        if self.positive_weight == self.negative_weight == 0.0:
            raise ValueError(
                "positive_weight and negative_weight are both 0, which leaves no gradient;"
                " set one of them above 0"
            )
        return self


class GroupAdvantage(_Advantage):
    """`(reward - baseline) / (scale + epsilon)` within the rollouts of one problem."""

    kind: Literal["group"] = "group"
    """Compare the rollouts of one problem with each other."""
    baseline: Literal["none", "mean", "leave_one_out"] = "mean"
    """Taken off the reward: nothing, the group's mean, or the mean of the others in the group."""
    scale: Literal[
        "none", "population", "sample", "leave_one_out", "mean", "batch_population", "batch_sample"
    ] = "none"
    """What it is divided by: nothing, a deviation of the group or the batch, or the mean."""
    epsilon: float = Field(default=1e-6, ge=0.0)
    """Added to the scale; counts with a `scale` only."""
    offset: float = 0.0
    """Taken off every reward first; without a baseline, 0.5 turns 0 and 1 into bad and good."""
    among: Literal["all", "positive"] = "all"
    """Whose rewards count: of all rollouts, or of those with a reward above 0, the rest get 0."""
    turns: TurnCredit | None = None
    """Credit by turns instead of by rollouts."""

    def without_effect(self) -> frozenset[str]:
        """`epsilon` without a scale."""
        own = frozenset({"epsilon"} if self.scale == "none" else ())
        return own | super().without_effect()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        of_group = self.scale != "none" and not self.scale.startswith("batch_")
        if self.baseline == "none" and of_group:
            raise ValueError(
                f"scale {self.scale} measures the spread of a group, but baseline is none;"
                " set baseline to mean or leave_one_out, or scale to none"
            )
        if self.baseline != "none" and self.offset != 0.0:
            raise ValueError(
                f"offset {self.offset} cancels against baseline {self.baseline};"
                " leave offset out, or set baseline to none"
            )
        if self.turns is not None and self.among == "positive":
            raise ValueError(
                "among positive compares whole rollouts, but turns gives credit by turns;"
                " set among to all, or leave turns out"
            )
        return self


class ReturnAdvantage(_Advantage):
    """The discounted sum of the rewards that follow a token, without a baseline."""

    kind: Literal["returns"] = "returns"
    """Credit each token with what follows it."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""


class GaeAdvantage(_Advantage):
    """Generalised advantage estimation from the values of a critic."""

    kind: Literal["gae"] = "gae"
    """Compare each token with what the critic expected."""
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Decay of the trace: 1 trusts the rewards alone, 0 the critic alone."""


AdvantageConfig = Annotated[
    GroupAdvantage | ReturnAdvantage | GaeAdvantage, Field(discriminator="kind")
]
