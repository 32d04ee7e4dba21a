"""What an answer earns: named components, how they are combined, and which one says solved."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.registry import COMBINES
from posttrain.learning.rewards.combines.sum import SumCombine
from posttrain.learning.rewards.components.base import Component
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.components.verifier import VerifierComponent
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import nearest
from posttrain.stage.slots import InSlot


class RewardStack(StageConfig):
    """Named components and how they become the number that is learned from."""

    components: Mapping[str, Annotated[Component, InSlot(COMPONENTS)]] = Field(
        default_factory=lambda: {"correct": VerifierComponent()}, min_length=1
    )
    """Name -> component: a kind's name, or a mapping with the kind and its settings."""
    combine: Annotated[Combine, InSlot(COMBINES)] = SumCombine()
    """How the components become one number."""
    solved_by: str | None = None
    """The component whose score of 1 says that a problem is solved; null for the first verifier."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name in (*self.combine.names(), *filter(None, [self.solved_by])):
            if name not in self.components:
                remedy = nearest(name, self.components) or "; add it to components"
                raise ValueError(f"there is no component '{name}'{remedy}")
        for name, part in self.components.items():
            if part.SCOPE not in ("answer", "group"):
                raise ValueError(
                    f"components.{name} scores every {part.SCOPE}, but an answer of this stage is"
                    " scored as a whole; take a component of scope answer or group"
                )
        if self.solved_by is None and not self._solvers():
            raise ValueError(
                "no component says by itself whether a problem is solved; set solved_by to one"
            )
        return self

    @property
    def solver(self) -> str:
        """The component whose score of 1 says that a problem is solved."""
        return self.solved_by or self._solvers()[0]

    def _solvers(self) -> list[str]:
        return [name for name, part in self.components.items() if part.SAYS_SOLVED]
