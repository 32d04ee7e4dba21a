"""Parameters of reinforcement learning."""

from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.pipeline.config import StageConfig


class RlConfig(StageConfig):
    """Rollouts, advantages, loss and optimisation."""

    steps: int = Field(120, ge=1)
    """Rounds of sampling and learning."""
    problems_per_step: int = Field(32, ge=1)
    """Problems drawn per step, by the signal that their solve rate promises."""
    group_size: int = Field(8, ge=1)
    """Rollouts per problem; the group's mean reward is the baseline."""
    temperature: float = Field(1.0, gt=0.0)
    """Sampling temperature; log-probabilities are taken at the same one."""
    max_tokens: int = Field(72, ge=1)
    """Longest completion, in tokens."""
    optimizer: Literal["adamw", "muon"] = "muon"
    """`muon` orthogonalises the updates of the layers' matrices and leaves the rest to AdamW."""
    learning_rate: float = Field(1e-3, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimisers."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Shape of the learning rate after the warm-up; a falling one keeps what large steps found."""
    warmup_steps: int = Field(5, ge=0)
    """Optimiser updates over which the learning rate rises."""
    max_grad_norm: float = Field(1.0, gt=0.0)
    """Gradients of a larger norm are scaled down to it."""
    epochs: int = Field(1, ge=1)
    """Passes over the rollouts of a step."""
    minibatches: int = Field(1, ge=1)
    """Optimiser updates per pass, each on whole groups."""
    micro_batch_tokens: int = Field(4096, ge=1)
    """Padded tokens of one forward pass; a small one pads little, and gives the same gradient."""
    clip_low: float = Field(0.2, ge=0.0, lt=1.0)
    """How far below 1 the ratio to the sampling policy counts."""
    clip_high: float = Field(0.28, ge=0.0)
    """How far above 1; higher than `clip_low` keeps rare good tokens alive."""
    advantage_scale: Literal["none", "sample", "population"] = "none"
    """What the advantage is divided by: nothing, or a deviation of the group's rewards."""
    entropy_coefficient: float = Field(0.0, ge=0.0)
    """Weight of an entropy bonus."""
    kl_coefficient: float = Field(0.0, ge=0.0)
    """Weight of the divergence from the reference policy."""
    max_logprob_gap: float = Field(0.05, gt=0.0)
    """Largest mean gap, in nats, between the sampler's log-probabilities and the trainer's."""
    checkpoint_every: int = Field(10, ge=0)
    """Steps between resumable checkpoints; 0 writes none."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.group_size == 1:
            raise ValueError(
                "group_size 1 makes every advantage 0, as a rollout is compared with its group;"
                " take at least 2"
            )
        if self.clip_low > self.clip_high:
            raise ValueError(
                f"clip_low {self.clip_low} exceeds clip_high {self.clip_high};"
                " swap them, or set both to one value"
            )
        if self.minibatches > self.problems_per_step:
            raise ValueError(
                f"minibatches {self.minibatches} exceeds problems_per_step"
                f" {self.problems_per_step}, and a group is never split; lower minibatches"
            )
        return self
