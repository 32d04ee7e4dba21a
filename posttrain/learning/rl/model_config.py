"""What learns or stands still beside the policy: a reference, a value model."""

from typing import Annotated, Literal

from pydantic import Field

from posttrain.learning.rl.references.base import ReferencePart
from posttrain.learning.rl.references.following import Frozen
from posttrain.learning.rl.references.registry import REFERENCES
from posttrain.learning.training.config import LearnerConfig
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import InSlot

ReferenceConfig = Annotated[ReferencePart, InSlot(REFERENCES)]
"""The type of a field that holds what becomes of the reference policy."""
FROZEN = Frozen()


class RlLearnerConfig(LearnerConfig):
    """How the policy's gradient is computed, and what its passes leave to be looked at."""

    MECHANICS = LearnerConfig.MECHANICS | {"entropies"}
    # Left out of what is keyed while it is off, so that runs that do not ask stay what they are.
    entropies: bool = Field(default=False, exclude_if=lambda kept: not kept)
    """Keep the policy's entropy at each token that is learned from in the table of rollouts: one
    more pass of each step, from which nothing is learned."""


class ValueModelConfig(Schedulable):
    """The value model of an algorithm that asks for one."""

    trunk: Literal["own", "shared"] = "own"
    """A copy of the starting policy below the value head, or the policy itself."""
    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Of the value head, and of its own trunk."""
