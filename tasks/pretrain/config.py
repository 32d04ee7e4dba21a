"""Parameters of pretraining and mid-training."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.learning.models.optimization import OptimizationConfig, OptimizerChoice
from posttrain.learning.models.optimizers.muon import Muon
from posttrain.learning.training.config import PaceConfig, TrainingConfig
from posttrain.learning.training.lengths import MaxLength
from posttrain.stage.slots import InSlot


class PretrainOptimization(OptimizationConfig):
    """Optimizer and learning rate of training from scratch."""

    optimizer: OptimizerChoice = Muon()
    """Muon learns from scratch in fewer steps than AdamW."""
    learning_rate: float = Field(default=3e-3, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimizers."""


class PretrainConfig(TrainingConfig):
    """The model's size, the mixture, and the optimization."""

    STAGE: ClassVar[str] = "pretrain"
    vocab_size: int = Field(512, ge=259)
    """Most tokens of the vocabulary: 256 bytes, 3 special ones, the rest merges."""
    hidden: int = Field(64, ge=8)
    """Width of the model."""
    layers: int = Field(2, ge=1)
    """Depth of the model."""
    heads: int = Field(4, ge=1)
    """Attention heads; they split the width evenly."""
    template: Annotated[Template, InSlot(TEMPLATES)] = OwnTemplate()
    """How a prompt is written; the model remembers it, and every later stage follows."""
    mixture: dict[str, float] = Field(default_factory=dict)
    """Share of each source among the training tokens; empty takes every row once per epoch."""
    max_length: MaxLength = "auto"  # type: ignore[assignment]
    """Longest prompt and completion in tokens; longer rows are left out and counted. `auto` goes by
    them: a quarter more than 99% have, from 512 to 4096 tokens; it is the context of a model that
    begins from nothing, and at most that of a given one."""
    loss_on_prompts: bool = False
    """Off spends a small model's capacity on the solutions, and none on predicting problems."""
    epochs: float = Field(1.5, gt=0.0)
    """Passes over the data; a fraction ends within a pass."""
    optimization: PretrainOptimization = PretrainOptimization()
    """Optimizer, learning rate and its schedule."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hidden % (2 * self.heads):
            raise ValueError(
                f"hidden {self.hidden} does not split into {self.heads} heads of an even width; "
                f"make it a multiple of {2 * self.heads}"
            )
        if self.mixture and self.order == "as_given":
            raise ValueError("a mixture draws its rows; leave mixture out, or take order: shuffled")
        if self.mixture and self.pace != PaceConfig():
            raise ValueError("a mixture draws from all rows; leave mixture out, or leave pace out")
        wrong = [name for name, share in self.mixture.items() if share <= 0]
        if wrong:
            raise ValueError(
                f"mixture gives '{wrong[0]}' the share {self.mixture[wrong[0]]}; "
                "use positive shares and leave out what should not be used"
            )
        return self
