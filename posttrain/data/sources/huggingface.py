"""Problems from a Hugging Face data set: by its name on the hub, or from a local folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from posttrain.data.hub import check_network
from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.table import TableSource
from posttrain.stage.errors import UserError, nearest

# What `Dataset.save_to_disk` and `DatasetDict.save_to_disk` leave behind.
_SAVED, _SAVED_SPLITS = "state.json", "dataset_dict.json"


class HuggingFaceSource(TableSource):
    """Reads a split of a Hugging Face data set: one commit of it on the hub, or a local folder.

    Source: own reader; data sets as huggingface/datasets keeps them.
    """

    kind: Literal["huggingface"] = "huggingface"
    path: str | None = None
    """Local folder of the data set, relative to the recipe; null for the hub."""
    hub: str | None = None
    """The data set's name on the hub, where the source is to be called otherwise."""
    revision: str | None = None
    """Commit of a data set on the hub; required there, so that the same bytes come again."""
    split: str = "train"
    """Split of the data set."""
    subset: str | None = None
    """Which of the data set's configurations, where it has several."""

    @model_validator(mode="after")
    def _has_a_place(self) -> Self:
        if self.path is None and self.revision is None:
            raise ValueError("pin the data set with revision: <commit>, or give a local path")
        if self.path is not None and self.hub is not None:
            raise ValueError("give path (a local folder) or hub (a name there), not both")
        return self

    def local_path(self) -> str | None:
        """Name the folder, if it is local."""
        return self.path

    def fetched(self) -> str | None:
        """Name the commit on the hub, if it comes from there."""
        return f"hf:datasets/{self.hub or self.name}@{self.revision}" if not self.path else None

    def origin(self) -> str:
        """Name the folder, or the data set on the hub."""
        return self.path or self.hub or self.name

    def records(self, request: SourceRequest) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Read row by row; see `TableSource.records`."""
        if self.path is not None:
            place = request.path or Path(self.path)
            rows = read_folder(place, split=self.split, scratch=request.scratch)
        else:
            rows = read_hub(
                self.origin(), revision=self.revision, split=self.split, subset=self.subset
            )
        yield from enumerate(rows, start=1)


def read_folder(folder: Path, *, split: str, scratch: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of a saved data set, or of a folder of files such as train.jsonl or train.parquet.

    `scratch` takes the converted copy that the library makes of plain files.
    """
    import datasets

    if not folder.is_dir():
        wrong = "a file, and kind huggingface reads a folder" if folder.exists() else "not there"
        raise UserError(f"{folder} is {wrong}; give the folder of a data set, or another kind")
    _quieten()
    try:
        if (folder / _SAVED_SPLITS).exists():
            saved = datasets.load_from_disk(str(folder))
            if split not in saved:
                raise UserError(f"{folder}: there is no split '{split}'{nearest(split, saved)}")
            table = saved[split]
        elif (folder / _SAVED).exists():
            table = datasets.load_from_disk(str(folder))
        else:
            table = datasets.load_dataset(str(folder), split=split, cache_dir=str(scratch))
        yield from table
    except _failures() as error:
        raise UserError(
            f"{folder} (split {split}) is no readable data set: {_explain_failure(error)}"
        ) from None


def read_hub(
    name: str, *, revision: str | None, split: str, subset: str | None = None
) -> Iterator[Mapping[str, Any]]:
    """Rows of one commit of a data set on the hub, through the hub's own cache.

    `subset` is for data sets that come as several, such as gsm8k's `main` and `socratic`.
    """
    import datasets

    where = f"data set '{name}' (split {split}, revision {revision})"
    check_network(
        where,
        remedy="without a network, download the data set elsewhere and give its folder as path",
    )
    _quieten()
    try:
        yield from datasets.load_dataset(name, subset, split=split, revision=revision)
    except _failures() as error:
        raise UserError(
            f"{where} did not load: {_explain_failure(error)}; "
            "check name, revision and split, or give the folder of a local copy as path"
        ) from None


def _quieten() -> None:
    import datasets

    datasets.disable_caching()
    datasets.disable_progress_bars()


def _failures() -> tuple[type[Exception], ...]:
    """What the library raises for files that it cannot read; it has no exception of its own."""
    from datasets.exceptions import DatasetsError

    return (OSError, ValueError, LookupError, RuntimeError, StopIteration, DatasetsError)


def _explain_failure(error: BaseException) -> str:
    """The first line of what went wrong in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, StopIteration | IndexError):
        return "it seems to have no rows"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
