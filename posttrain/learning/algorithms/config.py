"""An algorithm of reinforcement learning as a tree of independent switches.

A name such as "GRPO" means other things in other frameworks. What counts is this tree: it is
hashed by `identity`, named with its source by `presets`, and carried out by `objective`.
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.algorithms.advantage_config import AdvantageConfig, GroupAdvantage
from posttrain.learning.algorithms.correction_config import CorrectionConfig
from posttrain.learning.algorithms.ratio_config import ClipRatio, RatioConfig
from posttrain.stage.config import StageConfig


class AggregationConfig(StageConfig):
    """How the losses of tokens become one number."""

    kind: Literal[
        "token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant_length"
    ] = "token_mean"
    """Over all tokens; over sequences of their mean or sum; sum over a constant length."""
    length: int | None = Field(default=None, ge=1)
    """The constant of `constant_length`, in tokens; none takes the limit of generation."""

    @model_validator(mode="after")
    def _length_is_used(self) -> Self:
        if self.length is not None and self.kind != "constant_length":
            raise ValueError(
                f"length is the constant of constant_length, but kind is {self.kind};"
                " set kind to constant_length, or leave length out"
            )
        return self


class KlConfig(StageConfig):
    """A pull towards the reference policy; which policy that is, the stage says."""

    coefficient: float = Field(gt=0.0)
    """Weight of the divergence."""
    place: Literal["loss", "reward"] = "loss"
    """Added to the loss, or taken off the rewards before the advantages."""
    estimator: Literal["k1", "k2", "k3", "forward", "jensen_shannon", "chi_squared"] = "k3"
    """How the divergence at a token is estimated from the token drawn."""
    ratio_weighted: bool = False
    """Multiply by the ratio to the old policy, which makes k1 and k3 exact in a loss."""
    ceiling: float | None = Field(default=None, gt=0.0)
    """Largest estimate that counts at a token; none leaves it unbounded."""

    @model_validator(mode="after")
    def _has_a_gradient(self) -> Self:
        if self.place == "reward" and self.ratio_weighted:
            raise ValueError(
                "ratio_weighted is for a divergence in the loss, but place is reward;"
                " set ratio_weighted to false, or place to loss"
            )
        if self.place == "loss" and self.estimator == "k1" and not self.ratio_weighted:
            raise ValueError(
                "estimator k1 in the loss has a gradient of 0 on average;"
                " set ratio_weighted to true, place to reward, or estimator to k2"
            )
        return self


class EntropyConfig(StageConfig):
    """A bonus for an undecided policy."""

    coefficient: float = Field(gt=0.0)
    """Weight of the entropy, in nats."""
    place: Literal["advantage", "loss"] = "advantage"
    """Pay -log p of the token drawn, or add the exact entropy with its own gradient."""


class CriticConfig(StageConfig):
    """The loss of a value model: `coefficient x 1/2 max((V - R)^2, (clipped V - R)^2)`."""

    coefficient: float = Field(default=1.0, gt=0.0)
    """Weight of the value loss."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """How far a value may move before its gradient stops; none for the plain squared error."""


class OverlongConfig(StageConfig):
    """A penalty for completions that come near the limit of tokens, added to the reward."""

    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Part of the limit, at its end, over which the penalty grows from 0."""
    limit: int | None = Field(default=None, ge=1)
    """Tokens at which it is whole; none takes the limit of generation."""
    factor: float = Field(default=1.0, gt=0.0)
    """The whole penalty."""
    bounded: bool = True
    """Whether it stops growing at the limit."""

    def buffer(self, max_tokens: int | None) -> tuple[int, int]:
        """The limit and the tokens before it that cost something, for a limit of generation."""
        limit = self.limit or max_tokens
        if limit is None:
            raise ValueError("overlong without a limit needs max_tokens")
        return limit, max(1, round(self.share * limit))


class Algorithm(StageConfig):
    """The whole algorithm. Without any setting it is the preset `default`."""

    IDENTITY_OF: ClassVar[str] = "policy-gradient"

    advantage: AdvantageConfig = Field(default_factory=GroupAdvantage)
    """How rewards become advantages."""
    ratio: RatioConfig = Field(default_factory=ClipRatio)
    """How the ratio to the old policy enters the loss."""
    correction: CorrectionConfig = Field(default_factory=CorrectionConfig)
    """Which policy is the old one, and what is done about the sampler."""
    aggregation: AggregationConfig = Field(default_factory=AggregationConfig)
    """How the losses of tokens become one number."""
    kl: KlConfig | None = None
    """Pull towards the reference; none for no pull."""
    entropy: EntropyConfig | None = None
    """Bonus for entropy; none for no bonus."""
    critic: CriticConfig | None = None
    """Loss of the critic; none where no critic is trained."""
    overlong: OverlongConfig | None = None
    """Penalty for length; none for no penalty."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        estimator = self.advantage.kind
        if estimator == "gae" and self.critic is None:
            raise ValueError(
                "advantage.kind gae needs the values of a critic, and there is none;"
                " add a critic section, or set advantage.kind to group"
            )
        if estimator != "gae" and self.critic is not None:
            raise ValueError(
                f"critic is set, but advantage.kind {estimator} never asks it;"
                " leave critic out, or set advantage.kind to gae"
            )
        if self.ratio.kind == "gmpo" and self.aggregation.kind != "sequence_mean_token_mean":
            raise ValueError(
                "ratio.kind gmpo has one loss per sequence;"
                " set aggregation.kind to sequence_mean_token_mean"
            )
        if self.ratio.kind == "gmpo" and self._varies_within_a_sequence():
            raise ValueError(
                "ratio.kind gmpo needs one advantage per sequence; take advantage.kind"
                " group without turns, and an entropy or kl in the loss, or another surrogate"
            )
        return self

    def _varies_within_a_sequence(self) -> bool:
        by_tokens = not isinstance(self.advantage, GroupAdvantage) or bool(self.advantage.turns)
        return by_tokens or (self.entropy is not None and self.entropy.place == "advantage")
