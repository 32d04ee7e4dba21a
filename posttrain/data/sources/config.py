"""What the parameters of every stage that reads sources have in common."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from posttrain.data.sources.base import Source
from posttrain.data.sources.registry import SOURCES
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot


class SourcesConfig(StageConfig):
    """Sources of problems: each has a name of its own, and its local file comes to the stage."""

    sources: tuple[Annotated[Source, InSlot(SOURCES)], ...] = Field(min_length=1)
    """Where problems come from (`posttrain parts source`)."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [source.name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two sources are called '{twice}'; give each a name of its own")
        return self

    def check_names(self, where: str) -> None:
        """Refuse a source that cannot be read; see `StageConfig.check_names`."""
        for number, source in enumerate(self.sources):
            try:
                source.check()
            except UserError as error:
                raise UserError(f"{where}.sources.{number}: {error}") from None

    def local_files(self) -> Mapping[str, str]:
        """Paths of the file sources, by source name."""
        paths = {source.name: source.local_path() for source in self.sources}
        return {name: path for name, path in paths.items() if path is not None}
