"""What a format is: a part that knows the rows of others by their columns, and converts them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from posttrain.data.formats.forms import Form
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.slots import Part

_MOST = 0.75
"""Share of a sample that must fit: a broken row is named, and makes no other format of the file."""

RawRow = Mapping[str, Any]
"""A row by the names that its file has."""


class RowFormat(Part):
    """Knows the rows of others by their columns, and converts each to a form that is learned from.

    A part states `FORM`, `NAMES` and `NEEDED`, and defines `convert`.
    """

    FORM: ClassVar[type[Form]]
    """What a row becomes."""
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Our name of a column -> what files call it, as far as it is looked for without being told."""
    NEEDED: ClassVar[frozenset[str]] = frozenset()
    """Of our names, those without which a row is no such row."""

    columns: Mapping[str, str] = Field(default_factory=dict)
    """Our name -> the file's, by dots where it lies in another column (`meta.question`)."""

    def fits(self, record: RawRow) -> bool:
        """Look at the values of a row that has the needed columns.

        Args:
            record: A row of a sample.

        Returns:
            Whether they are what the format means: texts or numbers, unless a part says otherwise.

        """
        return all(is_text(self.value(record, name)) for name in self.NEEDED)

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Convert one row.

        Args:
            record: The row.
            where: File and line, for errors.

        Yields:
            What it becomes, as a rule one; none where nothing can be learned of it.

        Raises:
            UserError: A value is missing or is not what the format means.

        """
        raise NotImplementedError

    def meanings(
        self, sample: Sequence[RawRow], *, whatever: bool = False
    ) -> dict[str, str] | None:
        """Find out what the columns of a sample mean, if its rows are of this format.

        Args:
            sample: Some rows of a file.
            whatever: True where somebody said that it is this format: then values do not count, as
                the conversion names the row whose value is wrong.

        Returns:
            Our name -> the file's, for the columns that are there; None where it does not fit: a
            needed column is missing, or a quarter of the rows hold other values.

        Raises:
            UserError: Two columns could be the same thing; both are named.

        """
        present = present_columns(sample)
        places = {name: self._places(name, present, sample) for name in self.NAMES}
        if not all(places[name] for name in self.NEEDED):
            return None
        for name, several in places.items():
            if len(several) > 1:
                raise UserError(
                    f"{name} of format {self.kind} could be {' or '.join(map(repr, several))}; say"
                    f" which with columns: {{{name}: {several[0]}}}"
                )
        fitting = len(sample) if whatever else sum(self.fits(record) for record in sample)
        if fitting < _MOST * len(sample):
            return None
        return {name: several[0] for name, several in places.items() if several}

    def _places(
        self, name: str, present: Mapping[str, None], sample: Sequence[RawRow]
    ) -> list[str]:
        if name in self.columns:
            path = self.columns[name]
            return [path] if any(value_at(record, path) is not None for record in sample) else []
        return [each for each in self.NAMES[name] if each in present]

    def check_columns_of(self, sample: Sequence[RawRow], where: str) -> None:
        """Refuse columns that were stated and are unknown here, or not in the file.

        Args:
            sample: Some rows.
            where: The file, for errors.

        Raises:
            UserError: There is no such column, or no such name of ours.

        """
        for name, path in self.columns.items():
            if name not in self.NAMES:
                known = nearest(name, self.NAMES) or f"; there are {', '.join(self.NAMES)}"
                raise UserError(f"{where}: format {self.kind} has no column '{name}'{known}")
            if not any(_has(record, path) for record in sample):
                paths = [*present_columns(sample), *_inner(sample)]
                known = nearest(path, paths) or f"; there are {', '.join(present_columns(sample))}"
                raise UserError(f"{where}: there is no column '{path}' for {name}{known}")

    def value(self, record: RawRow, name: str) -> Any:
        """Take the value of one of our columns; None where the row has none.

        Args:
            record: The row.
            name: Ours.

        Returns:
            The value, as the file has it.

        """
        if name in self.columns:
            return value_at(record, self.columns[name])
        places = [each for each in self.NAMES[name] if record.get(each) is not None]
        return record[places[0]] if places else None

    def text(self, record: RawRow, name: str, where: str) -> str:
        """Take the text of one of our columns, without white space at its ends.

        Args:
            record: The row.
            name: Ours.
            where: File and line, for errors.

        Returns:
            The text; empty where a column that may be missing is.

        Raises:
            UserError: It is no text; or is missing or empty, and needed.

        """
        text = plain_text(self.value(record, name), f"{where}: {self._called(name)}")
        if not text and name in self.NEEDED:
            raise UserError(f"{where}: {self._called(name)} is empty; fill it, or drop the row")
        return text

    def number(self, record: RawRow, name: str, where: str) -> float | None:
        """Take the number of one of our columns; None where the row has none.

        Args:
            record: The row.
            name: Ours.
            where: File and line, for errors.

        Returns:
            The number.

        Raises:
            UserError: It is no number.

        """
        value = self.value(record, name)
        if value is None or value != value or value == "":
            return None
        return finite(value, f"{where}: {self._called(name)}")

    def _called(self, name: str) -> str:
        """Name a column of ours in a message, with the file's name where it is another one."""
        place = self.columns.get(name)
        return f"the {name} ('{place}')" if place else f"the {name}"


def value_at(record: RawRow, path: str) -> Any:
    """Take a value by a dotted path; a column that is called so goes first.

    >>> value_at({"a": {"b": [7]}}, "a.b.0"), value_at({"a.b": 1, "a": {"b": 2}}, "a.b")
    (7, 1)

    Args:
        record: A row.
        path: Names, and places in lists from 0, with dots between them.

    Returns:
        The value; None where there is none.

    """
    if path in record:
        return record[path]
    value: Any = record
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def plain_text(value: Any, what: str) -> str:
    """Read a value as text: numbers too, but no lists and no objects.

    Args:
        value: As the file has it; None and NaN are no text.
        what: File, line and column, for errors.

    Returns:
        The text without white space at its ends.

    Raises:
        UserError: It is something else, or holds half a character.

    """
    if value is None or value != value:
        return ""
    if not isinstance(value, str | int | float):
        raise UserError(f"{what} must be text, got {clipped(value)}")
    text = str(value).strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{what} holds half a character: {clipped(text)}") from None
    return text


def finite(value: Any, what: str) -> float:
    """Read a value as a number, also one that is written as text.

    Args:
        value: As the file has it.
        what: File, line and column, for errors.

    Returns:
        A finite number.

    Raises:
        UserError: It is none.

    """
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if not abs(number) < float("inf"):
        raise UserError(f"{what} must be a number, got {clipped(value)}")
    return number


def as_list(value: Any) -> list[Any] | None:
    """Take a list, also one that is written as JSON, as in CSV files; None for anything else."""
    if isinstance(value, str) and value.lstrip()[:1] == "[":
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return list(value) if isinstance(value, list | tuple) else None


def is_text(value: Any) -> bool:
    """Tell text, and numbers that a table has in its place, from lists, objects and nothing."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def present_columns(sample: Sequence[RawRow]) -> dict[str, None]:
    """Find the columns of a sample that hold something in some row, in their order."""
    return {
        name: None for record in sample for name, value in record.items() if value not in (None, "")
    }


def _inner(sample: Sequence[RawRow]) -> Iterator[str]:
    """Paths one level down."""
    for record in sample:
        for name, value in record.items():
            if isinstance(value, Mapping):
                yield from (f"{name}.{inner}" for inner in value)


def _has(record: RawRow, path: str) -> bool:
    """Whether a row has a column, be it empty."""
    outer, _, name = path.rpartition(".")
    holder = value_at(record, outer) if outer else record
    return (
        path in record
        or value_at(record, path) is not None
        or (isinstance(holder, Mapping) and name in holder)
    )
