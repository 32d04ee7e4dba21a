"""Charts: what is drawn where. `charts.html` has the SVG, and the style sheet the colors.

They are drawn ahead, so that the page shows them without a script or a network, prints them, and
follows the reader's light or dark theme. The script of the page only adds what appears under the
pointer. All numbers are pixels of the view box unless they are called values.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posttrain.stage.formatting import number
from posttrain.views.report.templates import template

WIDTH, HEIGHT = 380, 226
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 10, 36
_FLOOR, _MIDDLE = HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2
_ROW, _HIGHEST_ROW = 36, 60
_LETTER = 6.4


class Line(NamedTuple):
    """A straight line; `tip` is shown under the pointer."""

    style: str
    x1: float
    y1: float
    x2: float
    y2: float
    tip: str = ""


class Path(NamedTuple):
    """A curve through points, or the area that they enclose."""

    style: str
    spots: Sequence[tuple[float, float]]
    closed: bool = False


class Dot(NamedTuple):
    """A disc around a point."""

    style: str
    x: float
    y: float
    radius: float
    tip: str = ""


class Bar(NamedTuple):
    """A rectangle from its upper left corner."""

    style: str
    x: float
    y: float
    width: float
    height: float
    tip: str = ""


class Text(NamedTuple):
    """Words on a base line."""

    style: str
    x: float
    y: float
    words: str
    anchor: str = "start"


Mark = Line | Path | Dot | Bar | Text


@dataclass(frozen=True)
class Chart:
    """Marks with a title, a legend of (name, style), and a note that says how to read them.

    `points` are the rows that the script of the page shows under the pointer.
    """

    title: str
    marks: Sequence[Mark]
    legend: Sequence[tuple[str, str]] = ()
    note: str = ""
    height: float = HEIGHT
    points: Sequence[object] = ()

    def __html__(self) -> str:
        """Return the figure, as templates ask for it."""
        return str(template("charts.html").module.chart(self, WIDTH, _FLOOR))


@dataclass(frozen=True)
class Series:
    """Values of one name; `style` names a color (``c0`` ...) and may add ``dash`` or ``faint``.

    `low` and `high` draw a band or whiskers, `dots` shows the single points of a line.
    """

    name: str
    style: str
    values: Sequence[float]
    xs: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False


class Unit(NamedTuple):
    """How values are written: in full under the pointer, short on the axis."""

    full: Callable[[float], str]
    axis: Callable[[float], str]


def short_number(value: float) -> str:
    """A figure for an axis: thousands and millions by a letter."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10_000 <= abs(value) < 1e9 and abs(value) >= size:
            return f"{value / size:g}{letter}"
    return number(value)


NUMBER = Unit(number, short_number)
SHARE = Unit("{:.1%}".format, "{:.0%}".format)


def tick_values(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round values from `low` to `high`: steps of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """Values `low` to `high` on pixels `start` to `stop`, by ratio where `log` is set."""

    low: float
    high: float
    start: float = LEFT
    stop: float = WIDTH - RIGHT
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; all of an empty range lies in the middle."""
        low, high, at = (self.low, self.high, value)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + share * (self.stop - self.start)


def line_chart(
    title: str,
    lines: Sequence[Series],
    *,
    x_title: str,
    unit: Unit = NUMBER,
    y_range: tuple[float, float] | None = None,
    log_x: bool = False,
    note: str = "",
) -> Chart:
    """Draw `lines` over a common x; with `log_x`, the x values themselves are the ticks."""
    xs = sorted({x for line in lines for x in line.xs})
    across = Scale(xs[0], xs[-1], log=log_x)
    up = Scale(*(y_range or _range(lines)), _FLOOR, TOP)
    ticks = xs if log_x else [x for x in tick_values(xs[0], xs[-1]) if x == int(x)]
    marks = _frame(up, unit, [(across(x), short_number(x)) for x in ticks], x_title)
    for line in lines:
        at = [across(x) for x in line.xs]
        spots = list(zip(at, map(up, line.values), strict=True))
        if line.low:
            there = list(zip(at, map(up, line.high), strict=True))
            back = list(zip(at, map(up, line.low), strict=True))[::-1]
            marks.append(Path(f"band {line.style}", there + back, closed=True))
        marks.append(Path(f"line {line.style}", spots))
        marks += [Dot(line.style, x, y, 3) for x, y in spots if line.dots]
    shown = [line for line in lines if "faint" not in line.style]
    columns: dict[float, list[tuple[str, float, str]]] = {x: [] for x in xs}
    for line in shown:
        for index, x in enumerate(line.xs):
            y = round(up(line.values[index]), 1)
            columns[x].append(
                (line.style.split()[0], y, f"{line.name} {_value(line, index, unit)}")
            )
    points = [(round(across(x), 1), f"{x_title} {number(x)}", columns[x]) for x in xs]
    names = [(line.name, line.style) for line in shown if "dash" not in line.style]
    return Chart(title, marks, names, note, points=points)


def bar_chart(
    title: str,
    labels: Sequence[str],
    groups: Sequence[Series],
    *,
    x_title: str,
    unit: Unit = NUMBER,
    top: float | None = None,
    note: str = "",
) -> Chart:
    """Bars of every group side by side at each label, with whiskers."""
    highest = max((value for group in groups for value in (*group.values, *group.high)), default=0)
    up = Scale(0.0, top or highest * 1.05 or 1.0, _FLOOR, TOP)
    slot = (WIDTH - LEFT - RIGHT) / max(len(labels), 1)
    width = min(slot * 0.8 / max(len(groups), 1), 30)
    centers = [LEFT + slot * (index + 0.5) for index in range(len(labels))]
    letters = int(slot * len(labels) / max(sum(map(bool, labels)), 1) / _LETTER) - 2
    short = [_shortened(label, max(letters, 3)) for label in labels]
    marks = _frame(up, unit, list(zip(centers, short, strict=True)), x_title)
    for place, group in enumerate(groups):
        shift = (place - (len(groups) - 1) / 2) * width
        for index, value in enumerate(group.values):
            x, y = centers[index] + shift, up(value)
            tip = f"{labels[index]}, {group.name}: {_value(group, index, unit)}"
            marks.append(Bar(group.style, x - width * 0.46, y, width * 0.92, _FLOOR - y, tip))
            if group.low:
                marks.append(Line("whisker", x, up(group.low[index]), x, up(group.high[index])))
    return Chart(title, marks, [(group.name, group.style) for group in groups], note)


def interval_chart(title: str, rows: Sequence[Series], *, note: str = "") -> Chart:
    """Shares with their intervals: the one value of each series, on a row of its own."""
    row_height = min(max((HEIGHT - TOP - BOTTOM) / len(rows), _ROW), _HIGHEST_ROW)
    height = TOP + row_height * len(rows) + BOTTOM - 4
    low = max(0.0, min(row.low[0] for row in rows) - 0.05)
    high = min(1.0, max(row.high[0] for row in rows) + 0.05)
    across = Scale(low, high, 72, WIDTH - 64)
    marks: list[Mark] = []
    for value in tick_values(low, high):
        x = across(value)
        marks.append(Line("rule", x, TOP, x, height - BOTTOM + 4))
        marks.append(Text("tick", x, height - 16, SHARE.axis(value), "middle"))
    for index, row in enumerate(rows):
        y = TOP + row_height * (index + 0.5)
        tip = f"{row.name}: {_value(row, 0, SHARE)}"
        marks += [
            Text("name", 62, y + 4, row.name, "end"),
            Line(f"span {row.style}", across(row.low[0]), y, across(row.high[0]), y, tip),
            Dot(row.style, across(row.values[0]), y, 5, tip),
            Text("value", WIDTH - 50, y + 4, SHARE.full(row.values[0])),
        ]
    return Chart(title, marks, note=note, height=height)


def count_chart(title: str, counts: Sequence[tuple[str, float]]) -> Chart:
    """Counts as bars that lie down, so that long names have room."""
    most = max((count for _, count in counts), default=1.0) or 1.0
    marks: list[Mark] = []
    for index, (name, count) in enumerate(counts):
        y = TOP + _ROW * index
        width = max((WIDTH - LEFT - RIGHT) * count / most, 1.0) * 0.86
        marks += [
            Text("name", 4, y + 8, name),
            Bar("c0", 4, y + 14, width, 8),
            Text("value", width + 12, y + 23, number(count)),
        ]
    return Chart(title, marks, height=TOP + _ROW * len(counts))


def calibration_chart(
    title: str, claimed: Sequence[float], happened: Sequence[float], counts: Sequence[int]
) -> Chart:
    """What was claimed against what happened; area of a dot is the number of cases."""
    across, up = Scale(0.0, 1.0), Scale(0.0, 1.0, _FLOOR, TOP)
    ticks = [(across(tick / 4), f"{tick / 4:g}") for tick in range(5)]
    marks = _frame(up, Unit(number, "{:.1f}".format), ticks, "claimed probability")
    marks.append(Line("ideal", across(0), up(0), across(1), up(1)))
    for p, share, count in zip(claimed, happened, counts, strict=True):
        if count:
            tip = f"claimed {p:.2f}, happened {share:.2f}, {count} cases"
            radius = 3 + 7 * math.sqrt(count / max(counts))
            marks.append(Dot("c1", across(p), up(share), radius, tip))
    note = "On the diagonal, the model's confidence is right. Larger dots: more cases."
    return Chart(title, marks, note=note)


def share_labels(bins: int) -> list[str]:
    """Labels of the shares 0, 1 / bins ... 1, a few of them written out."""
    every = max(bins // 4, 1)
    return [f"{i / bins:.0%}" if i % every == 0 or i == bins else "" for i in range(bins + 1)]


def _frame(up: Scale, unit: Unit, x_ticks: Sequence[tuple[float, str]], x_title: str) -> list[Mark]:
    """Grid lines with their labels, labels below the plot, and what the x axis means."""
    marks: list[Mark] = []
    for value in tick_values(up.low, up.high):
        y = up(value)
        marks.append(Line("rule", LEFT, y, WIDTH - RIGHT, y))
        marks.append(Text("tick", LEFT - 6, y + 4, unit.axis(value), "end"))
    marks.append(Line("axis", LEFT, _FLOOR, WIDTH - RIGHT, _FLOOR))
    marks += [Text("tick", x, _FLOOR + 15, label, "middle") for x, label in x_ticks]
    return [*marks, Text("label", _MIDDLE, HEIGHT - 4, x_title, "middle")]


def _range(lines: Sequence[Series]) -> tuple[float, float]:
    """From the least to the greatest value with some air; a flat line gets some too."""
    values = [value for line in lines for value in (*line.values, *line.low, *line.high)]
    low, high = min(values), max(values)
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (0.0 if 0 <= low < (high - low) * 0.4 else low - air), high + air


def _value(series: Series, index: int, unit: Unit) -> str:
    """A value in full, with its interval where it has one."""
    text = unit.full(series.values[index])
    if not series.low:
        return text
    return f"{text} ({unit.full(series.low[index])} to {unit.full(series.high[index])})"


def _shortened(label: str, letters: int) -> str:
    """The label, cut where it would run into its neighbor."""
    return label if len(label) <= letters else label[: letters - 1] + "\N{HORIZONTAL ELLIPSIS}"
