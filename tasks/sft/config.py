"""Parameters of supervised fine-tuning."""

from typing import Annotated, ClassVar

from pydantic import Field

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.config import TrainingConfig
from posttrain.stage.slots import InSlot


class SftOptimization(OptimizationConfig):
    """Optimizer and learning rate; little data needs a short warm-up."""

    warmup_steps: int = Field(default=5, ge=0)
    """Optimizer steps over which the learning rate rises to its peak."""


class SftConfig(TrainingConfig):
    """Training on the completions; prompt tokens bear no loss."""

    STAGE: ClassVar[str] = "sft"
    template: Annotated[Template, InSlot(TEMPLATES)] = OwnTemplate()
    """How a prompt is written; the model remembers it, and every later stage follows."""
    optimization: SftOptimization = SftOptimization()
    """Optimizer, learning rate and its schedule."""
