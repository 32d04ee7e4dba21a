"""Parameters of supervised fine-tuning."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from posttrain.data.chat_templates.base import Template
from posttrain.data.chat_templates.own import OwnTemplate
from posttrain.data.chat_templates.registry import TEMPLATES
from posttrain.data.contexts import LearnedTurns
from posttrain.learning.models.optimization import OptimizationConfig
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.lengths import MaxLength
from posttrain.learning.training.row_losses.base import ROW_LOSS_NEEDS, RowLoss
from posttrain.learning.training.row_losses.cross_entropy import CrossEntropy
from posttrain.learning.training.row_losses.registry import ROW_LOSSES
from posttrain.stage.errors import nearest
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
    turns: LearnedTurns = "last"
    """What of a conversation bears loss: its `last` answer, or all that the `assistant` said."""
    loss: Annotated[RowLoss, InSlot(ROW_LOSSES)] = CrossEntropy()
    """What the tokens of a row are learned by: `cross_entropy`, or a mapping with a kind."""
    require_verified: bool = True
    """Refuse rows that no verifier accepted; false learns from whatever rows there are."""
    max_length: MaxLength = "auto"  # type: ignore[assignment]
    """Longest prompt and completion in tokens; longer rows are left out and counted. `auto` goes by
    them: a quarter more than 99% have, from 512 to 4096 tokens and no more than the model's
    context."""
    optimization: SftOptimization = SftOptimization()
    """Optimizer, learning rate and its schedule."""

    @model_validator(mode="after")
    def _has_what_the_loss_needs(self) -> Self:
        for need in sorted(self.loss.NEEDS - ROW_LOSS_NEEDS.keys()):
            known = nearest(need, ROW_LOSS_NEEDS) or f"; known are {', '.join(ROW_LOSS_NEEDS)}"
            raise ValueError(f"loss {self.loss.kind} needs {need}, which no stage has{known}")
        if "mixed_prompts" in self.loss.NEEDS and "judgments" not in self.loss.NEEDS:
            raise ValueError(f"loss {self.loss.kind} needs mixed_prompts, and so judgments too")
        if self.require_verified and "judgments" in self.loss.NEEDS:
            raise ValueError(
                f"loss {self.loss.kind} learns from wrong rows too; set require_verified to false"
            )
        return self

    @model_validator(mode="after")
    def _targets_are_of_whole_rows(self) -> Self:
        if self.learner.context_parallel and "targets" in self.loss.NEEDS:
            raise ValueError(
                "learner.context_parallel gives a process some tokens of a row, and loss"
                f" {self.loss.kind} reads what the policy says of a teacher's tokens at all of"
                " them; set context_parallel to false, or take another loss"
            )
        return self
