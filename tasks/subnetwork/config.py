"""Parameters of a subnetwork."""

from typing import Literal

from pydantic import Field

from posttrain.stage.config import StageConfig


class SubnetworkConfig(StageConfig):
    """Which weights may move: those of some tensors, those that another run moved, or both."""

    names: tuple[str, ...] = ()
    """Patterns of names of tensors, such as `*.mlp.*`; where there are some, no other tensor moves.
    """
    precision: Literal["bfloat16", "float32"] = "bfloat16"
    """In which the weights before and after are compared; the paper's checkpoints are bfloat16."""
    tolerance: float = Field(default=1e-5, ge=0.0)
    """Differences up to this count as none."""
