"""Parameters of evolving: what is failed, what stays, and how new problems come about."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Annotated, Protocol, Self, runtime_checkable

from pydantic import Field, model_validator

# Sources name worlds and verifiers by their slots, which are there once these are imported.
import posttrain.learning.episodes.registry
import posttrain.learning.rewards.verifiers.registry  # noqa: F401
from posttrain.data.sources.base import Source, SourceRows
from posttrain.data.sources.registry import SOURCES
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


@runtime_checkable
class PosesAround(Protocol):
    """A source that can pose a problem near one of its own."""

    def around(self, problem: "Problem", draw: Random, *, shift: int) -> "Problem":
        """Pose another problem, some levels harder or easier, whose parent is the first."""

    def in_context(self, rows: SourceRows) -> SourceRows:
        """Put the source's context around problems, as `Source.in_context` does."""


class EvolveConfig(StageConfig):
    """What is failed, what stays, and how many new problems come of each that is failed."""

    sources: tuple[Annotated[Source, InSlot(SOURCES)], ...] = Field(min_length=1)
    """The sources that the problems are of, as they were made; they pose the new ones, as `world`
    does. Problems of others stay or go by their solve rate alone."""
    per_failed: int = Field(default=2, ge=1)
    """New problems around each failed one."""
    shifts: Sequence[int] = Field(default=(-1, 0, 1), min_length=1)
    """By how many levels a new problem is harder than its parent; each draws one of these."""
    failed_at_most: float = Field(default=0.0, ge=0.0, le=1.0)
    """Solve rate up to which a problem counts as failed."""
    least: float = Field(default=0.05, ge=0.0, le=1.0)
    """Solve rate from which an attempted problem stays."""
    most: float = Field(default=0.75, ge=0.0, le=1.0)
    """Solve rate up to which it does."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for source in self.sources:
            if not isinstance(source, PosesAround):
                raise ValueError(
                    f"source '{source.name}' of kind {source.kind} poses no problems near others;"
                    " take a world, or leave it out"
                )
        if self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}; exchange them")
        return self
