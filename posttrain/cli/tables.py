"""Plain tables on the terminal."""

from collections.abc import Iterable, Sequence


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below their headings, without lines around them; `[red]x[/]` is colored."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headings, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
