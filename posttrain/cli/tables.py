"""Plain tables on the terminal."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from posttrain.cli.options import plain_table

if TYPE_CHECKING:
    from rich.text import Text


def print_table(headings: Sequence[str], rows: "Iterable[Sequence[str | Text]]") -> None:
    """Print rows below their headings, without lines around them; text stands as it is."""
    from rich.console import Console
    from rich.text import Text

    table = plain_table(*headings)
    for row in rows:
        table.add_row(*[Text(cell) if isinstance(cell, str) else cell for cell in row])
    Console().print(table)


def colored(word: str, color: str, rest: str = "") -> "Text":
    """Write a word of a table in a color, and what follows it without one."""
    from rich.text import Text

    return Text.assemble((word, color), rest)
