"""What the list of a table's rows is told when its page opens."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from posttrain.cli.page.columns import ListedColumn
from posttrain.cli.page.windows import ListedTable, RowQuestion

EXAMPLES = {
    "rollouts": "step >= 10 and reward < 1",
    "completions": "score < 1 and length(text) > 40",
    "problems": "difficulty >= 2",
    "solve_rates": "solve_rate < 0.5",
    "dropped": "reason = 'too_long'",
    "pairs": "split = 'heldout'",
    "curve": "step > 10",
    "verdicts": "score < 1",
}
"""An expression for each kind of table, to begin from."""

_NUMBER, _YES_NO, _ID, _FREE, _WIDEST = 84, 66, 150, 320, 240
_LETTER, _AROUND = 8, 34
"""Pixels of a letter, and of what stands around a text: padding, and the arrow of a heading."""
_FREE_TEXTS = ("text", "prompt", "chosen", "rejected", "answer", "reason", "rationale")


def described(
    listed: ListedTable, asked: RowQuestion, first: Mapping[str, Any], *, at: str
) -> dict[str, Any]:
    """Describe a list of rows for its page.

    Args:
        listed: The table.
        asked: Which rows, in which order.
        first: The first window on them.
        at: Address of the table.

    Returns:
        What is written into the page as JSON.

    """
    widths = [_width(each, listed.first[each.name]) for each in listed.columns]
    return {
        "rows": listed.num_rows,
        "columns": [
            {
                "name": each.name,
                "heading": each.heading,
                "shape": each.shape,
                "width": f"minmax({width}px, {'3fr' if width == _FREE else '1fr'})",
            }
            for each, width in zip(listed.columns, widths, strict=True)
        ],
        "width": sum(widths),
        "sort": asked.sort,
        "descending": asked.descending,
        "first": dict(first),
        "rows_at": f"{at}/rows",
        "row_at": f"{at}/row",
    }


def _width(column: ListedColumn, first: pl.Series) -> int:
    """Pixels in which the heading is not cut, nor are short texts such as names."""
    heading = _LETTER * len(column.heading) + _AROUND
    if column.shape == "number":
        return max(_NUMBER, heading)
    if column.shape == "yes_no":
        return max(_YES_NO, heading)
    if column.name in _FREE_TEXTS:
        return _FREE
    if column.name.endswith("id"):
        return max(_ID, heading)
    longest = int(first.str.len_chars().max() or 0)  # type: ignore[arg-type]
    return max(heading, min(_LETTER * longest + _AROUND, _WIDEST))
