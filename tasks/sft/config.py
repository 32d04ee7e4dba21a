"""Parameters of supervised fine-tuning."""

from pydantic import Field

from posttrain.learning.training.config import OptimisationConfig


class SftConfig(OptimisationConfig):
    """Optimisation on the completions; prompt tokens bear no loss."""

    warmup_steps: int = Field(5, ge=0)
    """Steps over which the learning rate rises to its peak."""
