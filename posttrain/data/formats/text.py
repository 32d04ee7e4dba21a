"""Texts without a question, as pretraining takes them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from posttrain.data.formats.base import RawRow, RowFormat
from posttrain.data.formats.forms import Form, PlainText


class TextFormat(RowFormat):
    """Read one text a row."""

    SOURCE = "TRL, 'Dataset formats': language modeling"
    FORM = PlainText
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {"text": ("text", "document")}
    NEEDED = frozenset({"text"})

    kind: Literal["text"] = "text"

    def fits(self, record: RawRow) -> bool:
        """Find text."""
        return isinstance(self.value(record, "text"), str)

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Read the text."""
        yield PlainText(self.text(record, "text", where))
