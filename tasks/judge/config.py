"""Parameters of a stage that judges stored answers."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.components.base import Component
from posttrain.learning.rewards.components.registry import COMPONENTS
from posttrain.learning.rewards.components.verifier import VerifierComponent
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot

SCOPES = ("answer", "group")
"""What a verdict may be about: an answer by itself, or among the others of its problem."""


class JudgeConfig(StageConfig):
    """Who is asked about the answers: components of a reward, each by itself."""

    components: Mapping[str, Annotated[Component, InSlot(COMPONENTS)]] = Field(
        default_factory=lambda: {"correct": VerifierComponent()}, min_length=1
    )
    """Name of the verdicts -> component, one that goes by prompts and texts."""

    @model_validator(mode="after")
    def _goes_by_texts(self) -> Self:
        for name, part in self.components.items():
            if part.NEEDS or part.reads() or part.when is not None or part.SCOPE not in SCOPES:
                raise ValueError(
                    f"components.{name}: a stored answer is a text, but {part.kind} goes by its"
                    " tokens, or by other components; take one that reads the text alone"
                )
        return self
