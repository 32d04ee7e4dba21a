"""How verbs are told the format of a file of rows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.formats.base import RowFormat

format_option = click.option(
    "--as", "kind", metavar="KIND", help="Format of the rows: `posttrain parts format`."
)
columns_option = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="OURS=THEIRS",
    help="With --as: which column of the file is meant, by dots inside of another (meta.question).",
)


def stated_format(kind: str | None, columns: Sequence[str]) -> "RowFormat | None":
    """Read the format that a command line names.

    Args:
        kind: Of --as; None where it is to be found out.
        columns: Of --column, each `OURS=THEIRS`.

    Returns:
        The format, or None.

    Raises:
        UserError: There is no such format, or a column is not written so.

    """
    from posttrain.data.formats.registry import FORMATS

    pairs = [each.partition("=") for each in columns]
    for given, (ours, _, theirs) in zip(columns, pairs, strict=True):
        if not ours or not theirs:
            raise UserError(f"--column '{given}': write it as OURS=THEIRS")
    if kind is None:
        if columns:
            raise UserError("--column maps a column of a format; say which with --as KIND")
        return None
    mapped = {ours: theirs for ours, _, theirs in pairs}
    try:
        return FORMATS.parse({"kind": kind, "columns": mapped} if mapped else kind)
    except ValueError as error:
        raise UserError(f"--as {kind}: {error}") from None
