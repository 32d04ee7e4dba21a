"""What learns or stands still beside the policy: a reference, a value model."""

from typing import Annotated, Literal

from pydantic import Field

from posttrain.learning.rl.references.base import ReferencePart
from posttrain.learning.rl.references.following import Frozen
from posttrain.learning.rl.references.registry import REFERENCES
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot

ReferenceConfig = Annotated[ReferencePart, InSlot(REFERENCES)]
"""The type of a field that holds what becomes of the reference policy."""
FROZEN = Frozen()


class ValueModelConfig(Schedulable):
    """The value model of an algorithm that asks for one."""

    trunk: Literal["own", "shared"] = "own"
    """A copy of the starting policy below the value head, or the policy itself."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Of the value head, and of its own trunk."""
