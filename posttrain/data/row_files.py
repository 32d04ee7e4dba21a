"""Rows of other people's files: JSON lines, JSON, CSV, text, parquet, packed or not, and folders.

Every row comes with where it stands, so that a complaint, and a trace years later, can name it.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError, first_line, nearest

_SAVED, _SAVED_SPLITS = "state.json", "dataset_dict.json"
"""What `Dataset.save_to_disk` and `DatasetDict.save_to_disk` leave behind."""
_ANY_SPLIT = "train"

Numbered = Iterator[tuple[int, Mapping[str, Any]]]
Complain = Callable[[UserError], None]


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of a file, by the names that it has there."""

    file: str
    """The file, as whoever asked names it; of a saved data set its folder and the split."""
    number: int
    """Line of a text file, or row of another one and of a JSON list without lines, from 1."""
    record: Mapping[str, Any]

    @property
    def where(self) -> str:
        """Name the row: `FILE:NUMBER`, for messages and as the origin of what is made of it."""
        return f"{self.file}:{self.number}"


def file_rows(
    path: Path, *, name: str = "", split: str = "", complain: Complain | None = None
) -> Iterator[FileRow]:
    """Read the rows of a file, of all files in a folder, or of a saved data set.

    Args:
        path: A file with an ending of `ROW_READERS`, packed with `.gz` or `.zst` or not; a folder
            of such, read in the order of their names; or what `save_to_disk` left.
        name: What the rows' origin is called; the path without it.
        split: Of a saved data set with several; of a folder, the files whose names begin so.
        complain: Takes what is wrong with a line of JSON lines, which is passed over then.

    Yields:
        Each row, in order.

    Raises:
        UserError: There is nothing to read, or a file or a row cannot be read; it is named.

    """
    name = name or str(path)
    if (path / _SAVED).is_file() or (path / _SAVED_SPLITS).is_file():
        yield from _saved_rows(path, name, split)
        return
    if path.is_dir():
        for file in _files_of(path, split):
            inner = file.relative_to(path).as_posix()
            yield from file_rows(file, name=f"{name}/{inner}", complain=complain)
        return
    if split:
        raise UserError(
            f"{name}: one file has no splits; leave split '{split}' out, or give the folder"
        )
    if not path.is_file():
        raise UserError(f"{name} is not there; give the path of a file, or of a folder of files")
    read = ROW_READERS[_kind_of(path, name)]
    for number, record in read(path, name, complain):
        yield FileRow(name, number, record)


def find_row(path: Path, number: int) -> str:
    """Find the text of one row again.

    Args:
        path: One file, or the folder of a saved data set with its split behind it.
        number: Line or row, from 1.

    Returns:
        The line as it stands there; of a file without lines the row as JSON, behind its row group
        where the file has some.

    Raises:
        UserError: The file cannot be read, or has no such row.

    """
    split = ""
    if not path.exists() and (path.parent / _SAVED_SPLITS).is_file():
        path, split = path.parent, path.name
    if path.is_file() and _kind_of(path, str(path)) in (".jsonl", ".txt"):
        with _opened(path, str(path)) as lines:
            for count, line in enumerate(lines, start=1):
                if count == number:
                    return line.decode("utf-8-sig", errors="replace").rstrip("\r\n")
    else:
        for row in file_rows(path, split=split):
            if row.number == number:
                text = json.dumps(row.record, ensure_ascii=False, default=str)
                return _row_group(path, number) + text
    raise UserError(f"{path} has no row {number} any more")


def is_row_file(path: Path) -> bool:
    """Tell by its ending whether a file holds rows."""
    return _ending(path) in ROW_READERS


def _saved_rows(folder: Path, name: str, split: str) -> Iterator[FileRow]:
    """The rows of what `save_to_disk` left; without a split, its only one or that to train on."""
    import datasets

    datasets.disable_progress_bars()
    try:
        saved = datasets.load_from_disk(str(folder))
    except (OSError, ValueError, LookupError) as error:
        raise UserError(f"{name} is no readable data set: {first_line(error)}") from None
    if (folder / _SAVED_SPLITS).is_file():
        chosen = split or (_ANY_SPLIT if _ANY_SPLIT in saved else "")
        chosen = chosen or (next(iter(saved)) if len(saved) == 1 else "")
        if chosen not in saved:
            known = f"; it has {', '.join(saved)}"
            hint = nearest(chosen, saved) or known
            said = f"there is no split '{chosen}'" if chosen else "it has several splits, say which"
            raise UserError(f"{name}: {said}{hint}")
        saved, name = saved[chosen], f"{name}/{chosen}"
    elif split:
        raise UserError(f"{name}: the data set has no splits; leave split '{split}' out")
    for number, record in enumerate(saved, start=1):
        yield FileRow(name, number, record)


def _files_of(folder: Path, split: str) -> list[Path]:
    inside = sorted(path for path in folder.rglob("*") if path.is_file() and is_row_file(path))
    files = [path for path in inside if path.name.startswith(split)]
    if not files:
        has = f", but {inside[0].name} is" if inside else ""
        of = f" of the split '{split}'" if split else ""
        raise UserError(
            f"{folder}: there is no file{of} in it{has}; files of rows end in"
            f" {', '.join(ROW_READERS)}, packed with {' or '.join(_OPENERS)} or not"
        )
    return files


def _ending(path: Path) -> str:
    """The ending that says what is in a file, below that which says how it is packed."""
    inner = path.with_suffix("") if path.suffix.lower() in _OPENERS else path
    return inner.suffix.lower()


def _kind_of(path: Path, name: str) -> str:
    ending = _ending(path)
    if ending not in ROW_READERS:
        raise UserError(
            f"{name}: rows are read from {', '.join(ROW_READERS)}, packed with"
            f" {' or '.join(_OPENERS)} or not; write one of these"
        )
    return ending


def _opened(path: Path, name: str) -> IO[bytes]:
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        return path.open("rb")
    try:
        return io.BytesIO(opener(path.read_bytes()))
    except (OSError, EOFError, ValueError) as error:
        kind = path.suffix.lower()[1:]
        raise UserError(f"{name}: not a whole {kind} file: {first_line(error)}") from None


def _unzstd(packed: bytes) -> bytes:
    import pyarrow  # type: ignore[import-untyped]

    with pyarrow.CompressedInputStream(pyarrow.BufferReader(packed), "zstd") as stream:
        found: bytes = stream.read()
        return found


def _json_lines(path: Path, name: str, complain: Complain | None) -> Numbered:
    with _opened(path, name) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = _object(f"{name}:{number}", line)
            except UserError as error:
                if complain is None:
                    raise
                complain(error)
                continue
            yield number, record


def _object(where: str, line: bytes) -> Mapping[str, Any]:
    try:
        text = line.decode("utf-8-sig").strip()
        record = json.loads(text, object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 text, at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        hint = "; name a file that is one JSON list .json" if text[:1] == "[" else ""
        raise UserError(f"{where}: not JSON: {error.msg} at column {error.colno}{hint}") from None
    except (RecursionError, ValueError) as error:
        raise UserError(f"{where}: not a row: {_too_much(error)}") from None
    return _checked(where, record)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that says a thing twice, of which JSON's reader would drop the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' stands twice in one object")
    return found


def _checked(where: str, record: Any) -> Mapping[str, Any]:
    if not isinstance(record, dict):
        raise UserError(f"{where}: a row must be a JSON object, got {clipped(record)}")
    return record


def _too_much(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else first_line(error)


def _json_list(path: Path, name: str, _: Complain | None) -> Numbered:
    """The objects of a JSON list by their lines, or by their places where some share a line."""
    rows = list(_listed(path, name))
    shared = len({line for line, _ in rows}) < len(rows)
    for place, (line, record) in enumerate(rows, start=1):
        yield place if shared else line, record


def _listed(path: Path, name: str) -> Numbered:
    """The objects of a JSON list one by one, each with the line in which it begins."""
    text = _decoded(path, name)
    decoder, place, line = json.JSONDecoder(object_pairs_hook=_once), 0, 1
    opened = False
    while True:
        begin = place
        while place < len(text) and (text[place].isspace() or (opened and text[place] == ",")):
            place += 1
        line += text.count("\n", begin, place)
        if opened and text[place : place + 1] == "]":
            return
        if not opened:
            if text[place : place + 1] != "[":
                raise UserError(
                    f"{name}:{line}: a .json file of rows is a list of objects; name a file with"
                    " one object a line .jsonl"
                )
            opened, place = True, place + 1
            continue
        try:
            record, end = decoder.raw_decode(text, place)
        except json.JSONDecodeError as error:
            raise UserError(f"{name}:{error.lineno}: not JSON: {error.msg}") from None
        except (RecursionError, ValueError) as error:
            raise UserError(f"{name}:{line}: not a row: {_too_much(error)}") from None
        yield line, _checked(f"{name}:{line}", record)
        line += text.count("\n", place, end)
        place = end


def _csv_rows(path: Path, name: str, _: Complain | None) -> Numbered:
    return _separated(path, name, ",")


def _tsv_rows(path: Path, name: str, _: Complain | None) -> Numbered:
    return _separated(path, name, "\t")


def _separated(path: Path, name: str, delimiter: str) -> Numbered:
    # Conversations are longer than the 128 kB that the module allows a value.
    csv.field_size_limit(2**31 - 1)
    text = io.StringIO(_decoded(path, name), newline="")
    rows = csv.reader(text, strict=True, delimiter=delimiter)
    try:
        header = next(rows, [])
        before = rows.line_num
        for row in rows:
            # A quoted value may go over several lines; the row is where it begins.
            number, before = before + 1, rows.line_num
            if row and len(row) != len(header):
                raise UserError(
                    f"{name}:{number}: {len(row)} values for {len(header)} columns; quote them"
                )
            if row:
                yield number, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise UserError(f"{name}:{rows.line_num}: not CSV: {error}") from None


def _text_lines(path: Path, name: str, _: Complain | None) -> Numbered:
    """Every line that is not empty, as the column `text`."""
    with _opened(path, name) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                text = line.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError as error:
                where = f"{name}:{number}"
                raise UserError(f"{where}: not UTF-8 text, at byte {error.start + 1}") from None
            if text.strip():
                yield number, {"text": text}


def _parquet(path: Path, name: str, _: Complain | None) -> Numbered:
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(use_threads=False):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        raise UserError(f"{name}: not a readable parquet file: {first_line(error)}") from None


def _row_group(path: Path, number: int) -> str:
    """Name the row group that a row of a parquet file lies in; nothing of another file."""
    if path.suffix.lower() != ".parquet":
        return ""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        before = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if number <= before + rows:
                return f"(row group {group + 1}, row {number - before}) "
            before += rows
    return ""


def _decoded(path: Path, name: str) -> str:
    with _opened(path, name) as file:
        try:
            return file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}: not UTF-8 text, at byte {error.start + 1}") from None


_OPENERS: Mapping[str, Callable[[bytes], bytes]] = {".gz": gzip.decompress, ".zst": _unzstd}
"""Suffix of a packed file -> what unpacks it."""

ROW_READERS: Mapping[str, Callable[[Path, str, Complain | None], Numbered]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".csv": _csv_rows,
    ".tsv": _tsv_rows,
    ".txt": _text_lines,
    ".parquet": _parquet,
}
"""Ending of a file -> what reads it, each row with its number."""
