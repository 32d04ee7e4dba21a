"""Charts that lie down: values below one another, each with its name and its figure written out."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from posttrain.views.charts.chart import SHARE, Chart, Json, Unit, color_scale, plot, value_axis

_BAND, _NAME = 17, 20
"""Pixels of a value, and of the name above those that share it."""
_FIGURES = 1.5
"""How much wider than its values a plot is, so that a figure has room beside each."""
_LEAST_AIR = 0.02


@dataclass(frozen=True)
class ChartRow:
    """One value, with its interval where it has one; rows of one `label` stand together."""

    label: str
    series: str
    color: int
    value: float
    said: str
    """The value in full, as it stands beside the mark."""
    low: float | None = None
    high: float | None = None


def row_chart(
    title: str,
    rows: Sequence[ChartRow],
    *,
    mark: Literal["dot", "bar"] = "dot",
    unit: Unit = SHARE,
    whole: bool = False,
    note: str = "",
) -> Chart:
    """Draw each value on a row of its own, with its interval and its figure.

    Args:
        title: Of the figure.
        rows: In the order in which they are shown; the same series at every label.
        mark: Dots may begin anywhere, bars begin at 0.
        unit: Of the axis.
        whole: Show the axis from 0 to 1, whatever the values.
        note: How to read it.

    Returns:
        The chart.

    """
    series = list(dict.fromkeys((row.series, row.color) for row in rows))
    labels = list(dict.fromkeys(row.label for row in rows))
    data = [
        {
            "label": row.label,
            "series": row.series,
            "value": row.value,
            "low": row.value if row.low is None else row.low,
            "high": row.value if row.high is None else row.high,
            "said": row.said,
        }
        for row in rows
    ]
    beside = max(Counter(row.label for row in rows).values(), default=1)
    block = _BAND * beside
    padding = _NAME / (block + _NAME)
    low, high = _bounds(rows, from_zero=mark == "bar", whole=whole)
    x: Json = {
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [low, low + (high - low) * _FIGURES], "nice": False},
        "axis": value_axis(unit) | {"values": _ticks(low, high)},
    }
    y: Json = {"field": "label", "type": "nominal", "sort": None, "axis": None}
    y["scale"] = {"paddingInner": padding, "paddingOuter": padding}
    place: Json = {"y": y}
    colored: Json = {"field": "series", "type": "nominal", **color_scale(series)}
    if beside == 1:
        colored["legend"] = None
    else:
        place["yOffset"] = {"field": "series", "sort": [name for name, _ in series]}
    told = [
        {"field": "label", "type": "nominal", "title": "of"},
        {"field": "series", "type": "nominal", "title": "what"},
        {"field": "said", "type": "nominal", "title": "value"},
    ]
    layers = [
        _names(labels, y),
        *_marks(mark, x, place, {"color": colored, "tooltip": told}),
        {
            "mark": {"type": "text", "align": "left", "dx": 9, "fontSize": 11.5},
            "encoding": {**place, "x": {**x, "field": "high"}, "text": {"field": "said"}},
        },
    ]
    height = round((block + _NAME) * len(labels) + _NAME)
    return Chart(title, plot(layers, height=height, data={"values": data}), note)


def _marks(mark: str, x: Json, place: Json, shown: Json) -> list[Json]:
    if mark == "bar":
        bars = {"type": "bar", "cornerRadiusEnd": 2, "size": _BAND - 6}
        return [{"mark": bars, "encoding": {**place, **shown, "x": {**x, "field": "value"}}}]
    ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}}
    span = {"type": "rule", "strokeWidth": 4, "opacity": 0.45, "strokeCap": "round"}
    dot = {"type": "circle", "size": 70, "opacity": 1}
    return [
        {"mark": span, "encoding": {**place, **shown, **ends}},
        {"mark": dot, "encoding": {**place, **shown, "x": {**x, "field": "value"}}},
    ]


def _names(labels: Sequence[str], y: Json) -> Json:
    """The labels, above what they stand for: there a long one has the width of the plot."""
    return {
        "data": {"values": [{"label": label} for label in labels]},
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "dy": -3},
        "encoding": {
            "x": {"value": 0},
            "y": {**y, "bandPosition": 0},
            "text": {"field": "label"},
            "color": {"value": "var(--soft)"},
        },
    }


def _bounds(rows: Sequence[ChartRow], *, from_zero: bool, whole: bool) -> tuple[float, float]:
    """Least and greatest value of the axis."""
    if whole:
        return 0.0, 1.0
    values = [each for row in rows for each in (row.value, row.low, row.high) if each is not None]
    high = max(values, default=1.0) or 1.0
    if from_zero:
        return 0.0, high
    low = min(values)
    air = max((high - low) * 0.1, _LEAST_AIR)
    return max(0.0, low - air), high + air


def _ticks(low: float, high: float) -> list[float]:
    """About four round values of the part of the plot that has values: by 1, 2 or 5 of a power."""
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.6g}") for index in range(first, last + 1)]
