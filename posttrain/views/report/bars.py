"""Bar charts: groups of bars side by side, intervals, and counts that lie down."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from posttrain.stage.formatting import number
from posttrain.views.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    NUMBER,
    RIGHT,
    TOP,
    WIDTH,
    Format,
    Scale,
    Unit,
    element,
    figure,
    horizontal,
    legend,
    percent,
    picture,
    tick_values,
    vertical,
    whole_percent,
    x_axis,
    y_axis,
)

_ROW, _HIGHEST_ROW = 36, 60
_LETTER = 6.4


@dataclass(frozen=True)
class Bars:
    """One bar per label, the same labels for all; `low` and `high` draw whiskers."""

    name: str
    values: Sequence[float]
    style: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class IntervalRow:
    """A value with its interval, on a row of its own."""

    name: str
    value: float
    low: float
    high: float
    style: str


def bar_chart(
    title: str,
    labels: Sequence[str],
    groups: Sequence[Bars],
    *,
    x_title: str,
    unit: Unit = NUMBER,
    top: float | None = None,
    note: str = "",
) -> Markup:
    """Bars of every group side by side at each label."""
    highest = max((value for bars in groups for value in (*bars.values, *bars.high)), default=0.0)
    up = vertical(0.0, top or highest * 1.05 or 1.0)
    slot = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    across = Scale(0, max(len(labels), 1), LEFT, WIDTH - RIGHT)
    width = min(slot * 0.8 / max(len(groups), 1), 30)
    centers = [index + 0.5 for index in range(len(labels))]
    room = slot * len(labels) / max(sum(map(bool, labels)), 1)
    short = [_shortened(label, room) for label in labels]
    parts = [y_axis(up, unit.axis), x_axis(across, centers, short, x_title)]
    for number_of_group, bars in enumerate(groups):
        shift = (number_of_group - (len(groups) - 1) / 2) * width
        for index, value in enumerate(bars.values):
            middle = across(centers[index]) + shift
            tip = f"{labels[index]}, {bars.name}: {unit.full(value)}{_span(bars, index, unit.full)}"
            parts.append(_bar(middle, width, up(value), bars.style, tip))
            if bars.low:
                parts.append(_whisker(middle, up(bars.low[index]), up(bars.high[index])))
    names = legend([(bars.name, bars.style) for bars in groups])
    return figure(title, picture(*parts, label=title), legend=names, note=note)


def _shortened(label: str, room: float) -> str:
    """The label, cut where it would run into its neighbour."""
    letters = max(int(room / _LETTER) - 1, 3)
    return label if len(label) <= letters else label[: letters - 1] + "\N{HORIZONTAL ELLIPSIS}"


def share_labels(bins: int) -> list[str]:
    """Labels of the shares 0, 1 / bins ... 1, a few of them written out."""
    every = max(bins // 4, 1)
    return [whole_percent(i / bins) if i % every == 0 or i == bins else "" for i in range(bins + 1)]


def _bar(middle: float, width: float, top: float, style: str, tip: str) -> Markup:
    return element(
        "rect",
        class_=f"bar {style}",
        x=middle - width * 0.46,
        y=top,
        width=width * 0.92,
        height=HEIGHT - BOTTOM - top,
        rx=1.5,
        data_tip=tip,
    )


def _span(bars: Bars, index: int, form: Format) -> str:
    return f" ({form(bars.low[index])} to {form(bars.high[index])})" if bars.low else ""


def _whisker(x: float, low: float, high: float) -> Markup:
    return element("line", class_="whisker", x1=x, x2=x, y1=low, y2=high)


def interval_chart(title: str, intervals: Sequence[IntervalRow], *, note: str = "") -> Markup:
    """Shares with their intervals, a row each."""
    room = (HEIGHT - TOP - BOTTOM) / len(intervals)
    row_height = min(max(room, _ROW), _HIGHEST_ROW)
    height = TOP + row_height * len(intervals) + BOTTOM - 4
    low = max(0.0, min(row.low for row in intervals) - 0.05)
    high = min(1.0, max(row.high for row in intervals) + 0.05)
    across = Scale(low, high, 72, WIDTH - 64)
    parts = []
    for value in tick_values(low, high):
        x = across(value)
        parts.append(element("line", class_="rule", x1=x, x2=x, y1=TOP, y2=height - BOTTOM + 4))
        label = whole_percent(value)
        parts.append(
            element("text", label, class_="tick", x=x, y=height - 16, text_anchor="middle")
        )
    for index, row in enumerate(intervals):
        parts.append(_interval_row(row, across, TOP + row_height * (index + 0.5)))
    return figure(title, picture(*parts, height=height, label=title), note=note)


def _interval_row(row: IntervalRow, across: Scale, y: float) -> Markup:
    left, right = across(row.low), across(row.high)
    tip = f"{row.name}: {percent(row.value)} ({percent(row.low)} to {percent(row.high)})"
    return Markup("").join(
        [
            element("text", row.name, class_="name", x=62, y=y + 4, text_anchor="end"),
            element(
                "line", class_=f"span {row.style}", x1=left, x2=right, y1=y, y2=y, data_tip=tip
            ),
            element(
                "circle", class_=f"dot {row.style}", cx=across(row.value), cy=y, r=5, data_tip=tip
            ),
            element("text", percent(row.value), class_="value", x=WIDTH - 50, y=y + 4),
        ]
    )


def count_chart(title: str, counts: Sequence[tuple[str, float]], *, note: str = "") -> Markup:
    """Counts as bars that lie down, so that long names have room."""
    height = TOP + _ROW * len(counts)
    across = horizontal(0.0, max((count for _, count in counts), default=1.0) or 1.0)
    parts = []
    for index, (name, count) in enumerate(counts):
        y = TOP + _ROW * index
        width = max(across(count) - LEFT, 1.0) * 0.86
        parts += [
            element("text", name, class_="name", x=4, y=y + 8),
            element("rect", class_="bar c0", x=4, y=y + 14, width=width, height=8, rx=2),
            element("text", number(count), class_="value", x=width + 12, y=y + 23),
        ]
    return figure(title, picture(*parts, height=height, label=title), note=note)
