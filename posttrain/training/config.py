"""The parameters that every supervised training stage shares."""

from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.pipeline.config import StageConfig


class OptimisationConfig(StageConfig):
    """How long, how fast and in what portions to train."""

    epochs: float = Field(1.0, gt=0.0)
    """Passes over the data; a fraction ends within a pass."""
    steps: int | None = Field(None, ge=1)
    """Optimiser steps, as many passes as they take; given, it replaces `epochs`."""
    batch_tokens: int = Field(2048, ge=1)
    """Tokens of one optimiser step, padding counted; a longer row still makes a batch."""
    micro_batch_tokens: int | None = Field(None, ge=1)
    """Tokens of one forward pass; a smaller part of the batch saves memory, same gradient."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon` orthogonalises the updates of the layers' matrices and leaves the rest to AdamW."""
    learning_rate: float = Field(1e-3, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimisers."""
    weight_decay: float = Field(0.0, ge=0.0)
    """Decoupled weight decay of the matrices."""
    schedule: Literal["constant", "linear", "cosine", "constant_then_decay"] = "linear"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = Field(20, ge=0)
    """Steps over which the learning rate rises to its peak."""
    decay_fraction: float = Field(0.3, gt=0.0, le=1.0)
    """Share of the steps after warm-up over which `constant_then_decay` falls."""
    max_grad_norm: float = Field(1.0, gt=0.0)
    """Gradients of a larger norm are scaled down to it."""
    checkpoint_every: int = Field(100, ge=0)
    """Steps between resumable checkpoints; 0 writes none."""

    @model_validator(mode="after")
    def _micro_batch_fits(self) -> Self:
        if self.micro_batch_tokens is not None and self.micro_batch_tokens > self.batch_tokens:
            raise ValueError(
                f"micro_batch_tokens {self.micro_batch_tokens} exceeds batch_tokens "
                f"{self.batch_tokens}; make it smaller or leave it out"
            )
        return self
