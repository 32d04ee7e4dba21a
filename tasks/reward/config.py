"""Parameters of reward-model training."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.pair_builders.base import PairBuilder
from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.pair_builders.verifier import VerifierPairs
from posttrain.learning.models.optimization import OptimizationConfig, OptimizerChoice
from posttrain.learning.models.optimizers.muon import Muon
from posttrain.learning.training.config import TrainingConfig
from posttrain.learning.training.lengths import MaxLength
from posttrain.learning.training.metrics import PAIR_METRICS
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot


class RewardOptimization(OptimizationConfig):
    """Optimizer and learning rate of a reward model."""

    optimizer: OptimizerChoice = Muon()
    """Muon learns the layers' matrices in fewer steps than AdamW."""
    learning_rate: float = Field(default=3e-4, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimizers."""


class RewardConfig(Schedulable, TrainingConfig):
    """How rewards are read off the model, how pairs are built, and the optimization."""

    STAGE: ClassVar[str] = "reward"
    parameterization: Literal["likelihood", "head"] = "likelihood"
    """`likelihood` scores by the mean log-probability of the completion, `head` by a scalar head;
    a small model trained on few pairs generalizes with the former only."""
    reads: Literal["answer", "both"] = "answer"
    """What the model is shown: the `answer` that it scores, or `both` of a pair, each behind a
    prompt that tells the other one. Such a model says how likely one is preferred, which may run
    in a circle, and is asked by the pair oracle `pair_model` alone."""
    scale: float = Field(10.0, gt=0.0)
    """Factor from what the model gives to the reward; the mean log-probability moves little."""
    builder: Annotated[PairBuilder, InSlot(PAIR_BUILDERS)] = VerifierPairs()
    """What stands against what in a pair."""
    pairs_per_problem: int = Field(2, ge=1)
    """Most pairs that one problem gives."""
    max_pairs: int | None = Field(None, ge=2)
    """Most pairs in all; every problem gives one before any gives two."""
    heldout_fraction: float = Field(0.2, gt=0.0, lt=1.0)
    """Share of the problems whose pairs are kept for the report."""
    centering: float = Field(0.0, ge=0.0)
    """Pull of each pair's mean reward to 0 (0.01 is usual with a head)."""
    max_length: MaxLength = "auto"  # type: ignore[assignment]
    """Longest prompt and completion in tokens; longer pairs are left out and counted. `auto` goes
    by them: a quarter more than 99% have, from 512 to 4096 tokens and no more than the model's
    context."""
    optimization: RewardOptimization = RewardOptimization()
    """Optimizer, learning rate and its schedule."""

    @classmethod
    def schedulable(cls) -> set[str]:
        """Only the weight in the loss; all else is read before the first step."""
        return {"centering"}

    def _refuse_schedules(self) -> None:
        self.refuse_unmeasured()

    def metrics(self) -> dict[str, str]:
        """Describe what the steps measure; see `TrainingConfig.metrics`."""
        return {**super().metrics(), **PAIR_METRICS}

    @model_validator(mode="after")
    def _head_reads_whole_rows(self) -> Self:
        if self.learner.context_parallel and self.parameterization == "head":
            raise ValueError(
                "learner.context_parallel puts log-probabilities of several processes together, and"
                " a scalar head reads hidden states; set context_parallel to false, or"
                " parameterization to likelihood"
            )
        return self

    @model_validator(mode="after")
    def _is_saved_whole(self) -> Self:
        if self.learner.lora and self.learner.lora.save == "adapter":
            raise ValueError("a reward model is saved whole; set learner.lora.save to merged")
        return self
