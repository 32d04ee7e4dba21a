"""Splitting a table by the reasons that filters give."""

from collections.abc import Iterable

import polars as pl

from posttrain.data.filters.base import KEEP, Filter, FilterInputs, reasons_from


def split_by_reason(
    frame: pl.DataFrame, reasons: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split `frame` into the rows to keep, as they were, and the rows to drop, with the reason.

    Args:
        frame: The rows.
        reasons: `reason` and `match` per row, as `Filter.reasons` gives them.

    Returns:
        The kept rows; and the dropped ones with the columns of `frame` and of `reasons`. A
        `reason` that the frame had already (a verifier's) gives way.

    Raises:
        ValueError: There is not one reason per row.

    """
    if len(reasons) != len(frame):
        raise ValueError(f"{len(reasons)} reasons for {len(frame)} rows")
    keep = reasons["reason"] == KEEP
    dropped = frame.filter(~keep).with_columns(reasons.filter(~keep))
    return frame.filter(keep), dropped


def apply_filters(
    frame: pl.DataFrame, filters: Iterable[Filter], inputs: FilterInputs
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pass `frame` through the filters in turn; each sees what the ones before it kept.

    Args:
        frame: The rows.
        filters: Filters, in order.
        inputs: The tables that they may compare with.

    Returns:
        The kept rows, and the dropped ones in the order of the filters.

    """
    # Without any filter there is an empty table of dropped rows, with all columns.
    dropped = [split_by_reason(frame, reasons_from(frame, pl.lit(KEEP)))[1]]
    for each in filters:
        frame, losses = split_by_reason(frame, each.reasons(frame, inputs))
        dropped.append(losses)
    return frame, pl.concat(dropped)
