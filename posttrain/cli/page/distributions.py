"""How the values of each column are spread."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from posttrain.provenance.lineage.tables import Table, collected
from posttrain.stage.formatting import number

_BINS = 24
_MOST_VALUES = 12


@dataclass(frozen=True)
class ColumnSpread:
    """The values of one column: counts by value or by bin, or of texts by their length."""

    column: str
    what: str
    """What is counted, such as `value` or `length in characters`."""
    labels: Sequence[str]
    counts: Sequence[int]
    summary: str
    chosen: bool = False
    """Whether a label is a value that rows can be chosen by."""
    ends: tuple[str, str] = ("", "")
    """The least and the greatest value, of what is counted in bins."""


def spreads_of(table: Table) -> list[ColumnSpread]:
    """Look at every column of a table but ids and what is nested.

    Args:
        table: The table.

    Returns:
        In the order of the columns.

    """
    schema = table.rows().collect_schema()
    found = []
    for name, dtype in schema.items():
        if name in ("id", "parents", "problem_id"):
            continue
        if isinstance(dtype, pl.List):
            lengths = _column(table, pl.col(name).list.len().cast(pl.Int64))
            found.append(_numeric(name, "how many", lengths))
        elif dtype == pl.Boolean:
            found.append(_by_value(name, _column(table, pl.col(name).cast(pl.String))))
        elif dtype.is_numeric():
            values = _column(table, pl.col(name))
            few = values.n_unique() <= _MOST_VALUES and dtype.is_integer()
            found.append(_by_number(name, values) if few else _numeric(name, "value", values))
        elif dtype == pl.String:
            values = _column(table, pl.col(name))
            if values.n_unique() <= _MOST_VALUES:
                found.append(_by_value(name, values))
            else:
                found.append(_numeric(name, "length in characters", values.str.len_chars()))
    return [each for each in found if len(each.counts) > 1]


def _column(table: Table, values: pl.Expr) -> pl.Series:
    return collected(table.rows().select(values), table).to_series()


def _by_value(name: str, values: pl.Series) -> ColumnSpread:
    counts = values.fill_null("").value_counts(sort=True).rows()
    labels = [str(value) for value, _ in counts]
    said = f"{len(labels)} values"
    return ColumnSpread(name, "value", labels, [count for _, count in counts], said, chosen=True)


def _by_number(name: str, values: pl.Series) -> ColumnSpread:
    counts = values.drop_nulls().value_counts().sort(name).rows()
    labels = [str(value) for value, _ in counts]
    ends = labels[0] if labels else "", labels[-1] if labels else ""
    return ColumnSpread(
        name, "value", labels, [count for _, count in counts], _said(values), ends=ends
    )


def _numeric(name: str, what: str, values: pl.Series) -> ColumnSpread:
    """Counts in bins of equal width, from the least to the greatest finite value."""
    finite = values.cast(pl.Float64).drop_nulls()
    finite = finite.filter(finite.is_finite())
    if finite.is_empty() or finite.min() == finite.max():
        return ColumnSpread(name, what, [], [], _said(values))
    low, high = float(finite.min()), float(finite.max())  # type: ignore[arg-type]
    width = (high - low) / _BINS
    if values.dtype.is_integer():
        # Of a bin that holds two integers and one that holds three the second is no mode.
        width = float(max(1, math.ceil((high - low + 1) / _BINS)))
    num_bins = min(_BINS, math.floor((high - low) / width) + 1)
    places = ((finite - low) / width).floor().clip(0, num_bins - 1).cast(pl.Int64)
    counted = dict(places.value_counts().rows())
    starts = [low + index * width for index in range(num_bins)]
    labels = [number(start) if width == 1 else f"from {number(start)}" for start in starts]
    counts = [counted.get(index, 0) for index in range(num_bins)]
    return ColumnSpread(name, what, labels, counts, _said(values), ends=(number(low), number(high)))


def _said(values: pl.Series) -> str:
    finite = values.cast(pl.Float64).drop_nulls()
    finite = finite.filter(finite.is_finite())
    if finite.is_empty():
        return "no values"
    median, mean = finite.median(), finite.mean()
    told = [
        f"{word} {number(float(value))}"  # type: ignore[arg-type]
        for word, value in (
            ("least", finite.min()),
            ("median", median),
            ("mean", mean),
            ("greatest", finite.max()),
        )
    ]
    absent = len(values) - len(finite)
    return ", ".join([*told, *([f"{absent:,} without a value"] if absent else [])])
