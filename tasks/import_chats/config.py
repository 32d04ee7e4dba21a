"""Parameters of an import of conversations."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from posttrain.data.brought_files import BroughtFile, names_by_path
from posttrain.stage.config import StageConfig


class ImportChatsConfig(StageConfig):
    """Files of conversations, instructions or answered questions, and how they are parted."""

    sources: tuple[BroughtFile, ...] = Field(min_length=1)
    """The files; `posttrain data inspect FILE` says how one is read."""
    heldout_fraction: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Share of the prompts of parted files that is held out, chosen by content."""

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names_by_path(self.sources)
        return self

    def local_files(self) -> Mapping[str, str]:
        """Each file arrives as `files.NAME`."""
        return names_by_path(self.sources)
