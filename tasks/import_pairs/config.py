"""Parameters of an import of pairs."""

from collections.abc import Mapping

from posttrain.stage.config import StageConfig


class ImportPairsConfig(StageConfig):
    """A file whose columns are called as here: prompt, chosen, rejected, and what may be beside."""

    path: str
    """File of pairs (.jsonl, .json, .csv, .parquet), relative to the recipe."""
    source: str = ""
    """Source of the pairs that name none; empty takes the file's name without its ending."""
    ignore: tuple[str, ...] = ()
    """Columns of the file to leave out; any other one that is not known is refused."""

    def local_files(self) -> Mapping[str, str]:
        """The file arrives as `files.pairs`."""
        return {"pairs": self.path}
