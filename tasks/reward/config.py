"""Parameters of reward-model training."""

from pydantic import Field

from posttrain.training.config import OptimisationConfig


class RewardConfig(OptimisationConfig):
    """How pairs are built, which problems are held out, and the optimisation."""

    pairs_per_problem: int = Field(8, ge=1)
    """Most pairs that one problem gives."""
    heldout_fraction: float = Field(0.2, gt=0.0, lt=1.0)
    """Share of the problems whose pairs are kept for the report."""
    centring: float = Field(0.01, ge=0.0)
    """Pull of each pair's mean reward to 0, which makes rewards comparable across problems."""
    max_length: int = Field(512, ge=8)
    """Longest prompt and completion in tokens; pairs with a longer one are left out and counted."""
    learning_rate: float = Field(1e-3, gt=0.0)
    """Peak learning rate."""
    epochs: float = Field(2.0, gt=0.0)
    """Passes over the training pairs."""
