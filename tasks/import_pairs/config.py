"""Parameters of an import of pairs."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from posttrain.data.brought_files import BroughtFile, names_by_path
from posttrain.stage.config import StageConfig


class ImportPairsConfig(StageConfig):
    """Files of preferences, labels or scored lists; or one whose columns are called as here."""

    sources: tuple[BroughtFile, ...] = ()
    """The files, each read by its format; `posttrain data inspect FILE` says how one is read."""
    heldout_fraction: float = Field(default=0.1, gt=0.0, lt=1.0)
    """Share of the prompts of parted sources that is held out, chosen by content."""
    path: str = ""
    """In place of sources: one file with the columns prompt, chosen, rejected, and what else a
    table of pairs has (docs/recipes.md); any other column is refused."""
    source: str = ""
    """Of `path`: source of the pairs that name none; empty takes the file's name."""
    ignore: tuple[str, ...] = ()
    """Of `path`: columns of the file to leave out."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if bool(self.sources) == bool(self.path):
            which = "both are there" if self.path else "neither is there"
            raise ValueError(f"pairs come from sources or from path, but {which}; write one")
        names_by_path(self.sources)
        return self

    def local_files(self) -> Mapping[str, str]:
        """Each file arrives as `files.NAME`, that of `path` as `files.pairs`."""
        return {"pairs": self.path} if self.path else names_by_path(self.sources)
