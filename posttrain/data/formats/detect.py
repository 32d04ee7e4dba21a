"""Which format a file's rows are of: what is seen is said, and of two readings none is guessed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from posttrain.data.formats.base import RawRow, RowFormat, present_columns
from posttrain.data.formats.registry import FORMATS
from posttrain.data.row_files import Complain, file_rows
from posttrain.stage.errors import UserError

SAMPLE = 200
"""Rows at the beginning of a file that are looked at."""


@dataclass(frozen=True)
class Reading:
    """How the rows of a file are read."""

    format: RowFormat
    meanings: dict[str, str]
    """Our name of a column -> the file's."""
    unread: tuple[str, ...]
    """Columns of the file that mean nothing in this format."""
    passed_over: tuple[str, ...] = ()
    """Formats that fit as well and read fewer of the columns."""

    def __str__(self) -> str:
        """Say it in a line."""
        named = [n if n == place else f"{n} ({place})" for n, place in self.meanings.items()]
        said = f"{self.format.kind}: {', '.join(named)}" if named else self.format.kind
        if self.unread:
            said += f"; not read: {', '.join(self.unread)}"
        if self.passed_over:
            said += f" (rather than {' or '.join(self.passed_over)}, which would read less)"
        return said


def sampled(
    path: Path, *, name: str = "", split: str = "", complain: Complain | None = None
) -> list[RawRow]:
    """Read the first rows of a file; see `file_rows`.

    Args:
        path: File, folder or saved data set.
        name: What it is called in errors.
        split: Of a data set with several.
        complain: As in `file_rows`.

    Returns:
        At most `SAMPLE` rows.

    Raises:
        UserError: It cannot be read, or has no rows.

    """
    read = file_rows(path, name=name, split=split, complain=complain)
    rows = [row.record for row in islice(read, SAMPLE)]
    if not rows:
        raise UserError(f"{name or path}: there are no rows in it")
    return rows


def detect(sample: Sequence[RawRow], *, where: str, wanted: RowFormat | None = None) -> Reading:
    """Find the format that rows are of.

    Of two that fit, one that reads all columns of the other and more is taken.

    Args:
        sample: Some rows of a file.
        where: The file, for errors.
        wanted: The format, where somebody said which; its columns are checked.

    Returns:
        The format, and what each column means.

    Raises:
        UserError: None fits, two do, or the stated one does not; the remedy is named.

    """
    if wanted is not None:
        return _stated(sample, where, wanted)
    readings = list(_readings(sample, where))
    kept = [one for one in readings if not any(_reads_less(one, other) for other in readings)]
    if len(kept) > 1:
        named = " or as ".join(f"{each.format.kind} ({_columns(each)})" for each in kept)
        kinds = [each.format.kind for each in kept]
        raise UserError(
            f"{where}: the rows can be read as {named}; say which: `--as {kinds[0]}` or"
            f" `--as {kinds[1]}`, in a recipe `format: {kinds[0]}` or `format: {kinds[1]}`"
        )
    if not kept:
        raise UserError(_nothing_fits(sample, where))
    (found,) = kept
    others = tuple(each.format.kind for each in readings if each is not found)
    return Reading(found.format, found.meanings, found.unread, others)


def _stated(sample: Sequence[RawRow], where: str, wanted: RowFormat) -> Reading:
    wanted.check_columns_of(sample, where)
    meanings = _meanings(wanted, sample, where, whatever=True)
    if meanings is None:
        missing = " and ".join(sorted(_missing(wanted, sample)))
        raise UserError(
            f"{where}: the rows are not of format {wanted.kind}: they lack {missing}; their columns"
            f" are {', '.join(present_columns(sample))} (columns: {{ours: theirs}} maps one)"
        )
    return _reading(wanted, meanings, sample)


def _readings(sample: Sequence[RawRow], where: str) -> Iterator[Reading]:
    for part in FORMATS.offered().values():
        try:
            known = part.model_validate({})
        except ValidationError:
            # One that must be told something, such as a function, is never found by itself.
            continue
        meanings = _meanings(known, sample, where)
        if meanings is not None:
            yield _reading(known, meanings, sample)


def _meanings(
    known: RowFormat, sample: Sequence[RawRow], where: str, *, whatever: bool = False
) -> dict[str, str] | None:
    try:
        return known.meanings(sample, whatever=whatever)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def _reading(known: RowFormat, meanings: dict[str, str], sample: Sequence[RawRow]) -> Reading:
    read = {place.partition(".")[0] for place in meanings.values()} | {*meanings.values()}
    unread = tuple(name for name in present_columns(sample) if name not in read)
    return Reading(known, meanings, () if not meanings else unread)


def _reads_less(one: Reading, other: Reading) -> bool:
    return set(one.meanings.values()) < set(other.meanings.values())


def _columns(reading: Reading) -> str:
    return ", ".join(reading.meanings.values())


def _missing(known: RowFormat, sample: Sequence[RawRow]) -> set[str]:
    present = present_columns(sample)
    places = {name: {known.columns.get(name, ""), *known.NAMES[name]} for name in known.NEEDED}
    return {name for name in known.NEEDED if not places[name] & present.keys()}


def _nothing_fits(sample: Sequence[RawRow], where: str) -> str:
    """Say which columns there are, and what the format that is nearest would need."""
    columns = ", ".join(present_columns(sample)) or "none that hold anything"
    known = [part.model_validate({}) for part in FORMATS.parts.values() if part.NEEDED]
    if inner := _inner_columns(sample, known):
        return (
            f"{where}: no format has the columns {columns}, but columns inside of them, which are"
            f" written with dots, fit: {inner}"
        )
    near = [(len(_missing(each, sample)), each) for each in known]
    some = [(lacks, each) for lacks, each in near if lacks < len(each.NEEDED)]
    hint = ""
    if some:
        _, nearest = min(some, key=lambda each: each[0])
        missing = " and ".join(sorted(_missing(nearest, sample)))
        lacks = f"lacks {missing}" if missing else "holds other values there"
        hint = f"; of format {nearest.kind} it {lacks}"
    return (
        f"{where}: no format has the columns {columns}{hint}; map them with `--as KIND --column"
        " OURS=THEIRS` (format: {kind: ..., columns: {ours: theirs}}), or convert rows by a"
        " function: format: {kind: map, function: module:function}"
    )


def _inner_columns(sample: Sequence[RawRow], known: Sequence[RowFormat]) -> str:
    """Spell the options by which a format reads columns that lie in others; empty where none do."""
    inner = {
        f"{name}.{below}": below
        for record in sample
        for name, value in record.items()
        if isinstance(value, Mapping)
        for below in value
    }
    present = present_columns(sample)
    for each in known:
        places = {
            name: next((path for path in [*present, *inner] if inner.get(path, path) in names), "")
            for name, names in each.NAMES.items()
            if name in each.NEEDED
        }
        if all(places.values()) and not present.keys() >= {*places.values()}:
            columns = " ".join(f"--column {name}={place}" for name, place in places.items())
            return f"--as {each.kind} {columns}"
    return ""
