"""Plain tables on the terminal."""

from collections.abc import Iterable, Sequence

from posttrain.cli.options import plain_table


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below their headings, without lines around them; `[red]x[/]` is colored."""
    from rich.console import Console

    table = plain_table(*headings)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
