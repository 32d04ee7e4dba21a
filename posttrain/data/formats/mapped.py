"""Rows that a function of one's own converts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.data.formats.base import RawRow, RowFormat
from posttrain.data.formats.forms import Form
from posttrain.data.formats.messages import MessagesFormat
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError
from posttrain.stage.slots import function_named


class MappedFormat(RowFormat):
    """Call `module:function` of the project with a row; it returns the messages, or None to drop.

    The function returns what `format: messages` reads: {"messages": [...], "tools": [...]}.

    Source: own, whatever the project's function makes of a row.
    """

    FORM = MessagesFormat.FORM
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {}

    kind: Literal["map"] = "map"
    function: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """The function as `module:name`, at the root of the project; its code is in the key."""

    def fits(self, record: RawRow) -> bool:  # noqa: ARG002
        """Fit whatever there is: somebody named the function."""
        return True

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Convert what the function returns."""
        converted = function_named(self.function)
        try:
            given = converted(dict(record))
        except Exception as error:  # noqa: BLE001 - it is someone else's code
            raise UserError(
                f"{where}: {self.function} raised {type(error).__name__}: {error}; mend it there"
            ) from error
        if given is None:
            return
        if not isinstance(given, Mapping) or "messages" not in given:
            raise UserError(
                f"{where}: {self.function} must return a mapping with messages, or None to drop the"
                f" row, got {clipped(given)}"
            )
        yield from MessagesFormat().convert(given, where)

    def functions(self) -> tuple[str, ...]:
        """Name the function."""
        return (self.function,)
