"""Parameters of an import of problems."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

# Sources name their verifiers by the slot, which is there once its registry is imported.
import posttrain.learning.rewards.verifiers.registry  # noqa: F401
from posttrain.data.sources.base import Source
from posttrain.data.sources.registry import SOURCES
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot


class ImportProblemsConfig(StageConfig):
    """Sources of problems, each with its verifier; every row of a file is taken."""

    sources: tuple[Annotated[Source, InSlot(SOURCES)], ...] = Field(min_length=1)
    """Where problems come from (`posttrain parts source`)."""
    num_problems: int = Field(default=128, ge=1)
    """Problems of each generator, spread evenly over its levels."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [source.name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two sources are called '{twice}'; give each a name of its own")
        return self

    def local_files(self) -> Mapping[str, str]:
        """Paths of the file sources, by source name."""
        paths = {source.name: source.local_path() for source in self.sources}
        return {name: path for name, path in paths.items() if path is not None}
