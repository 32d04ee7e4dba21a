"""Rows of a Hugging Face data set: by its name on the hub, or from a local folder."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from posttrain.data.hub import check_network
from posttrain.stage.errors import UserError, nearest

# What `Dataset.save_to_disk` and `DatasetDict.save_to_disk` leave behind.
_SAVED, _SAVED_SPLITS = "state.json", "dataset_dict.json"


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
            f"{folder} (split {split}) is no readable data set: {_why(error)}"
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
            f"{where} did not load: {_why(error)}; "
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


def _why(error: BaseException) -> str:
    """The first line of what went wrong in the first place."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, StopIteration | IndexError):
        return "it seems to have no rows"
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
