"""Parameters of learning to predict masks."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.config import LearnerConfig, TrainingConfig
from posttrain.stage.slots import InSlot


class DenoiseOptimization(OptimizationConfig):
    """Optimizer and learning rate of training from scratch."""

    learning_rate: float = Field(default=3e-3, gt=0.0)
    """Peak learning rate."""


class DenoiseConfig(TrainingConfig):
    """The model's size, the length of its answers, and the optimization."""

    STAGE: ClassVar[str] = "denoise"
    vocab_size: int = Field(512, ge=260)
    """Most tokens of the vocabulary: 256 bytes, 4 special ones, the rest merges."""
    hidden: int = Field(64, ge=8)
    """Width of the model."""
    layers: int = Field(2, ge=1)
    """Depth of the model."""
    heads: int = Field(4, ge=1)
    """Attention heads; they split the width evenly."""
    canvas: int = Field(32, ge=2)
    """Tokens of every answer, filled up with end tokens; a longer one is refused."""
    template: Annotated[Template, InSlot(TEMPLATES)] = OwnTemplate()
    """How a prompt is written; the model remembers it, and every later stage follows."""
    optimization: DenoiseOptimization = DenoiseOptimization()
    """Optimizer, learning rate and its schedule."""

    @model_validator(mode="after")
    def _whole_rows(self) -> Self:
        kept = LearnerConfig(**dict(self.learner) | {"packing": False, "lora": None})
        if kept != self.learner:
            raise ValueError(
                "denoise trains whole weights of one model on padded rows; leave learner.packing"
                " and learner.lora out"
            )
        return self
