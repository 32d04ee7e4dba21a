"""What learns or stands still beside the policy: a reference, a value model."""

from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.config import StageConfig
from posttrain.stage.schedule import Schedulable


class ReferenceConfig(StageConfig):
    """What becomes of the reference policy while the policy moves on."""

    kind: Literal["frozen", "ema", "periodic"] = "frozen"
    """It stays, follows as a moving average, or is made the policy now and then."""
    decay: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Weight of its own past in the moving average, per optimizer update."""
    every: int | None = Field(default=None, ge=1)
    """Optimizer updates between two periodic refreshes."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, value, kind in (("decay", self.decay, "ema"), ("every", self.every, "periodic")):
            if kind == self.kind and value is None:
                raise ValueError(f"kind {kind} needs {name}; set it")
            if kind != self.kind and value is not None:
                raise ValueError(
                    f"{name} is for kind {kind}, but kind is {self.kind};"
                    f" set kind to {kind}, or leave {name} out"
                )
        return self

    @property
    def moves(self) -> bool:
        """True where the reference does not stay what it was at the start."""
        return self.kind != "frozen"

    def step_toward_policy(self, num_updates: int) -> float:
        """Say which part of the way to the policy the reference goes now.

        Args:
            num_updates: Optimizer updates so far, this one included.

        Returns:
            0 where it stays, 1 where it becomes the policy.

        """
        if self.decay is not None:
            return 1.0 - self.decay
        return float(self.every is not None and num_updates % self.every == 0)


class ValueModelConfig(Schedulable):
    """The value model of an algorithm that asks for one."""

    trunk: Literal["own", "shared"] = "own"
    """A copy of the starting policy below the value head, or the policy itself."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Of the value head, and of its own trunk."""
