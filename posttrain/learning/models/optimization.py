"""What a recipe says of the optimizer and of the learning rate; light enough to be parsed."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, model_validator

from posttrain.learning.models.optimizers.adamw import AdamW
from posttrain.learning.models.optimizers.base import OptimizerPart, StateFormat
from posttrain.learning.models.optimizers.registry import OPTIMIZERS
from posttrain.stage.schedule import Schedulable, schedules_in
from posttrain.stage.slots import InSlot

RoundingKind = Literal["nearest", "stochastic", "kahan"]
LrScheduleKind = Literal["constant", "linear", "cosine", "constant_then_decay"]


def _spelled(part: OptimizerPart) -> str | dict[str, Any]:
    """Write a part without settings as its kind alone, as recipes do."""
    said = part.model_dump(mode="json")
    return part.kind if said.keys() == {"kind"} else said


OptimizerChoice = Annotated[OptimizerPart, InSlot(OPTIMIZERS), PlainSerializer(_spelled)]
"""The type of a field that holds what steps."""


class OptimizationConfig(Schedulable):
    """How gradients become steps: the same names for every trainer.

    The numbers may be schedules, those excepted that say how long a shape is or lasts.
    """

    # Not `rounding`: to the nearest number small steps are lost, and a policy stands still.
    MECHANICS = frozenset({"states", "in_backward", "offload"})
    FIXED: ClassVar[frozenset[str]] = frozenset({"weight_decay", "warmup_steps", "decay_fraction"})

    optimizer: OptimizerChoice = AdamW()
    """`adamw`, or `muon`, which orthogonalizes the updates of the layers' matrices and leaves the
    rest to AdamW."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Peak learning rate, on AdamW's scale for both optimizers.

    A schedule in its place asks for `lr_schedule: constant` and `warmup_steps: 0`, by which it
    would be multiplied otherwise.
    """
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled weight decay of the matrices."""
    lr_schedule: LrScheduleKind = "linear"
    """Shape of the learning rate after the warm-up."""
    warmup_steps: int = Field(default=20, ge=0)
    """Optimizer steps over which the learning rate rises to its peak."""
    decay_fraction: float = Field(default=0.3, gt=0.0, le=1.0)
    """Share of the steps after warm-up over which `constant_then_decay` falls."""
    max_grad_norm: float | None = Field(default=1.0, gt=0.0)
    """Gradients of a larger norm are scaled down to it; null leaves them as they are."""
    states: StateFormat = "fp32"
    """`8bit` keeps the moments of AdamW in blocks of 8-bit numbers: 2 bytes a weight, not 8."""
    rounding: RoundingKind | None = None
    """How weights that are held in bfloat16 (`learner.weights`) are written after a step that was
    computed in float32; null is `stochastic`, `kahan` takes 2 bytes a weight more."""
    in_backward: bool = False
    """Step each weight as soon as its gradient is there, and drop that: no two gradients stand
    beside each other, so that no norm of all of them can be clipped."""
    offload: bool = False
    """Keep the moments in the host's memory; those of one weight at a time come to the GPU."""

    @property
    def is_constant(self) -> bool:
        """True where the factor is 1 at every step."""
        return self.lr_schedule == "constant" and self.warmup_steps == 0

    def without_effect(self) -> frozenset[str]:
        """`rounding` where it is what null stands for."""
        own = frozenset({"rounding"} if self.rounding == "stochastic" else ())
        return own | super().without_effect()

    def packages(self) -> frozenset[str]:
        """Those of optimizers that are not torch's."""
        return frozenset({"bitsandbytes"}) if self.states == "8bit" else frozenset()

    @model_validator(mode="after")
    def _optimizer_takes_it(self) -> Self:
        kind = self.optimizer.kind
        if self.states not in self.optimizer.STATES:
            raise ValueError(
                f"states {self.states} is not for optimizer {kind}, which keeps what it remembers"
                f" in {' or '.join(sorted(self.optimizer.STATES))}; set optimizer to adamw, or"
                " states to fp32"
            )
        if self.in_backward and not self.optimizer.BY_PARAMETER:
            raise ValueError(
                f"in_backward steps each weight before the others have gradients, and optimizer"
                f" {kind} works on those of many at once; set optimizer to adamw, or in_backward to"
                " false"
            )
        if self.in_backward and self.max_grad_norm is not None:
            raise ValueError(
                f"in_backward steps weights before the norm of all gradients is known, so"
                f" max_grad_norm {self.max_grad_norm} cannot be held; set max_grad_norm to null, or"
                " in_backward to false"
            )
        return self

    def _refuse_schedules(self) -> None:
        """Refuse two schedules of one number."""
        scheduled = {name for name, _ in schedules_in(self)}
        if "learning_rate" in scheduled and not self.is_constant:
            raise ValueError(
                f"learning_rate is a schedule, and lr_schedule {self.lr_schedule} with warmup_steps"
                f" {self.warmup_steps} would multiply it; set lr_schedule to constant and"
                " warmup_steps to 0"
            )

    def factor(self, step: int, *, num_steps: int) -> float:
        """Compute the multiple of the peak learning rate at one optimizer step.

        Args:
            step: Number of the optimizer step, from 0.
            num_steps: Optimizer steps of the whole run.

        Returns:
            A number above 0 and at most 1.

        """
        return learning_rate_factor(
            step,
            num_steps=num_steps,
            lr_schedule=self.lr_schedule,
            warmup_steps=self.warmup_steps,
            decay_fraction=self.decay_fraction,
        )


def why_whole(config: OptimizationConfig, *, narrow: bool) -> str | None:
    """Say what of a config cannot step a model of which several processes have a part each.

    Args:
        config: How weights are stepped.
        narrow: Whether those that are trained are held in bfloat16.

    Returns:
        A sentence without its end; None where all of it can.

    """
    by_piece = narrow or config.in_backward or config.states != "fp32"
    if by_piece and not config.optimizer.ELEMENTWISE:
        return (
            f"optimization.optimizer {config.optimizer.kind} steps whole matrices, and several"
            " processes have rows of bfloat16 weights each; set it to adamw, or learner.weights to"
            " fp32"
        )
    if config.offload:
        return (
            "optimization.offload is for one process that has whole weights; of several,"
            " learner.offload keeps shards and states in host memory"
        )
    return None


def learning_rate_factor(
    step: int,
    *,
    num_steps: int,
    lr_schedule: LrScheduleKind,
    warmup_steps: int = 0,
    decay_fraction: float = 0.2,
) -> float:
    """Compute the multiple of the peak rate: a linear warm-up, then the named shape.

    Decays reach their lowest, still positive, value at the last step.

    Args:
        step: Number of the optimizer step, from 0.
        num_steps: Optimizer steps of the whole run.
        lr_schedule: Shape after the warm-up.
        warmup_steps: Steps of the warm-up; step `t` of them is at (t + 1) / (warmup_steps + 1).
        decay_fraction: Share of the steps after the warm-up over which `constant_then_decay` falls.

    Returns:
        A number above 0 and at most 1.

    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    left = (num_steps - step) / max(1, num_steps - warmup_steps)
    return LR_SCHEDULES[lr_schedule](min(1.0, max(0.0, left)), decay_fraction)


def _constant(_left: float, _decay_fraction: float) -> float:
    return 1.0


def _linear(left: float, _decay_fraction: float) -> float:
    return left


def _cosine(left: float, _decay_fraction: float) -> float:
    return 0.5 * (1.0 - math.cos(math.pi * left))


def _constant_then_decay(left: float, decay_fraction: float) -> float:
    return min(1.0, left / decay_fraction) if decay_fraction > 0 else 1.0


LR_SCHEDULES = {
    "constant": _constant,
    "linear": _linear,
    "cosine": _cosine,
    "constant_then_decay": _constant_then_decay,
}
