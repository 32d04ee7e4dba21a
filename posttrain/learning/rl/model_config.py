"""What learns beside the policy: a value model."""

from typing import Literal

from pydantic import Field

from posttrain.stage.schedule import Schedulable


class ValueModelConfig(Schedulable):
    """The value model of an algorithm that asks for one."""

    trunk: Literal["own", "shared"] = "own"
    """A copy of the starting policy below the value head, or the policy itself."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Of the value head, and of its own trunk."""
