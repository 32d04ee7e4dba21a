"""How results look: a table in a plain terminal, and one in a notebook, from the same rows."""

import html
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Grid:
    """A table with a line above it and some below, in plain text.

    Attributes:
        title: What it is about.
        headings: Names of the columns.
        rows: Cells; a line break in one is kept.
        below: Sentences after the table.

    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    below: Sequence[str] = ()

    def text(self) -> str:
        """Write it in columns, as wide as their longest line."""
        lines = [self.title] if self.title else []
        if self.rows:
            split = [[cell.split("\n") for cell in row] for row in (self.headings, *self.rows)]
            widths = [max(map(len, sum(column, []))) for column in zip(*split, strict=True)]
            for row in split:
                for number in range(max(map(len, row))):
                    cells = [cell[number] if number < len(cell) else "" for cell in row]
                    padded = map(str.ljust, cells, widths)
                    lines.append("  ".join(padded).rstrip())
        return "\n".join([*lines, *self.below])

    def html(self) -> str:
        """Write it as a table whose colors are those of the page that it stands in."""
        title = f"<caption style='text-align:left'><b>{escaped(self.title)}</b></caption>"
        head = "".join(
            f"<th style='text-align:left'>{escaped(each)}</th>" for each in self.headings
        )
        body = "".join(
            "<tr>"
            + "".join(
                f"<td style='text-align:left;white-space:pre-wrap'>{escaped(cell)}</td>"
                for cell in row
            )
            + "</tr>"
            for row in self.rows
        )
        table = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return (table if self.rows else f"<b>{escaped(self.title)}</b>") + "".join(
            f"<div>{escaped(line)}</div>" for line in self.below
        )


def escaped(text: str) -> str:
    """Write text so that a page shows it as it stands, line breaks included.

    >>> escaped("a < b")
    'a &lt; b'
    """
    return html.escape(text).replace("\n", "<br>")


class Displayed(ABC):
    """A result that a terminal shows as text and a notebook as a table."""

    @abstractmethod
    def grid(self) -> Grid:
        """Lay out what is shown."""

    def __repr__(self) -> str:
        return self.grid().text()

    def _repr_html_(self) -> str:
        """Notebooks ask for it."""
        return self.grid().html()
