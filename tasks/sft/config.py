"""Parameters of supervised fine-tuning."""

from pydantic import Field

from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.config import TrainingConfig


class SftOptimization(OptimizationConfig):
    """Optimizer and learning rate; little data needs a short warm-up."""

    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer steps over which the learning rate rises to its peak."""


class SftConfig(TrainingConfig):
    """Training on the completions; prompt tokens bear no loss."""

    optimization: SftOptimization = SftOptimization()
    """Optimizer, learning rate and its schedule."""
