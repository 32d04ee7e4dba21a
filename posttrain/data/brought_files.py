"""Files that somebody brings: how a recipe names them, and what a plan looks at in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from posttrain.data.formats.base import RowFormat
from posttrain.data.formats.detect import Reading, detect, sampled
from posttrain.data.formats.registry import FORMATS
from posttrain.data.wanted_rows import Wanted
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot
from posttrain.stage.spec import Dag, Stage

Use = Literal["parted", "train", "heldout"]


class BroughtFile(StageConfig):
    """A file, a folder of files, or a saved data set, and how it counts."""

    path: str
    """File (.jsonl, .json, .csv, .tsv, .txt, .parquet, packed with .gz or .zst or not), folder of
    such, or folder of a saved data set; relative to the recipe."""
    name: str = Field(default="", pattern=r"^[\w.-]*$")
    """What its rows are called as a source; empty takes the file's name without its endings."""
    format: Annotated[RowFormat, InSlot(FORMATS)] | None = None
    """How its rows are read (`posttrain parts format`); null finds it out by the columns, and
    refuses where two formats fit."""
    split: str = ""
    """Split of a data set that has several, or what the names of a folder's files begin with."""
    use: Use = "parted"
    """`train` and `heldout` keep it whole; `parted` holds out a share of its prompts."""
    weight: float = Field(default=1.0, gt=0.0)
    """How much each of its rows counts in training: 2 is as if it stood there twice."""
    limit: int | None = Field(default=None, ge=1)
    """Most rows that are taken of it; which ones is decided by their content."""

    def called(self) -> str:
        """Name the source."""
        return self.name or Path(self.path).name.partition(".")[0]

    def reading(self, path: Path) -> Reading:
        """Find out how the rows are read.

        Args:
            path: Where the file lies.

        Returns:
            The format, and what the columns mean.

        Raises:
            UserError: It cannot be read, or is of no format, or of two.

        """
        rows = sampled(path, name=self.path, split=self.split)
        return detect(rows, where=self.path, wanted=self.format)


def names_by_path(files: Sequence[BroughtFile]) -> dict[str, str]:
    """Name the files of a config, each for its port.

    Args:
        files: As the recipe has them.

    Returns:
        Source -> path.

    Raises:
        ValueError: Two have one name.

    """
    named = {each.called(): each.path for each in files}
    if len(named) < len(files):
        names = [each.called() for each in files]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two sources are called '{twice}'; give each a name of its own")
    return named


def refuse_unread_files(stage: Stage, files: Sequence[BroughtFile], wanted: Wanted[Any]) -> None:
    """Look at the first rows of each file before anything runs.

    Args:
        stage: Has the files at its port `files`.
        files: As its config has them.
        wanted: What it takes.

    Raises:
        UserError: A file cannot be read, is of no format or of two, or has something else.

    """
    for file in files:
        reference = stage.inputs.get(f"files.{file.called()}")
        if reference is not None and reference.path is not None and reference.path.exists():
            wanted.check(file.reading(reference.path), file.path)


def refuse_lone_answers(stage: Stage, dag: Dag) -> None:
    """Refuse answers that were judged alone for a stage that compares two answers to one prompt.

    Args:
        stage: Has the port `pairs`.
        dag: Knows where these come from.

    Raises:
        UserError: They come from a file of such answers.

    """
    reference = stage.inputs.get("pairs")
    while reference is not None and reference.stage is not None:
        maker = dag.stages[reference.stage]
        for file in getattr(maker.config, "sources", ()):
            source = maker.inputs.get(f"files.{file.called()}")
            if source is None or source.path is None or not source.path.exists():
                continue
            reading = file.reading(source.path)
            if reading.format.FORM.JUDGES_ALONE:
                raise UserError(
                    f"{stage.name}.inputs.pairs: {file.path} holds {reading.format.FORM.WHAT}, and"
                    " a reward model learns from pairs of answers to one prompt; leave the stage"
                    " out (flow: flows.own_preferences), or bring preferences"
                )
        reference = maker.inputs.get("pairs")
