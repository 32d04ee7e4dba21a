"""Line charts: curves over steps, pass@k with its band, calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from posttrain.stage.formatting import number
from posttrain.views.report.svg import (
    BOTTOM,
    HEIGHT,
    NUMBER,
    Format,
    Scale,
    Unit,
    element,
    figure,
    horizontal,
    legend,
    picture,
    short_number,
    tick_values,
    vertical,
    x_axis,
    y_axis,
)

_MOST_POINTS = 200


@dataclass(frozen=True)
class LineSeries:
    """One series of values; `style` names a color (``c0`` ...) and may add ``dash`` or ``faint``.

    `low` and `high` draw a band; `marks` shows the single points.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    marks: bool = False


def line_chart(
    title: str,
    lines: Sequence[LineSeries],
    *,
    x_title: str,
    unit: Unit = NUMBER,
    y_range: tuple[float, float] | None = None,
    log_x: bool = False,
    note: str = "",
) -> Markup:
    """Draw `lines` over a common x; with `log_x`, the x values themselves are the ticks."""
    lines = [_finite(line) for line in lines]
    xs = sorted({x for line in lines for x in line.xs})
    if not xs:
        return Markup("")
    across = horizontal(xs[0], xs[-1], log=log_x)
    up = vertical(*(y_range or _range(lines)))
    ticks = xs if log_x else [x for x in tick_values(xs[0], xs[-1]) if x == int(x)]
    parts = [
        y_axis(up, unit.axis),
        x_axis(across, ticks, [short_number(x) for x in ticks], x_title),
        *(_draw(line, across, up) for line in lines),
    ]
    shown = [line for line in lines if "faint" not in line.style]
    points = _points(shown, across, up, x_title, unit.full)
    names = legend([(line.name, line.style) for line in shown if "dash" not in line.style])
    return figure(title, picture(*parts, points=points, label=title), legend=names, note=note)


def calibration_chart(
    title: str, claimed: Sequence[float], happened: Sequence[float], counts: Sequence[int]
) -> Markup:
    """What was claimed against what happened; area of a dot is the number of cases."""
    across, up = horizontal(0.0, 1.0), vertical(0.0, 1.0)
    most = max(counts, default=1)
    ticks = [0.0, 0.25, 0.5, 0.75, 1.0]
    parts = [
        y_axis(up, lambda value: f"{value:.1f}"),
        x_axis(across, ticks, [f"{tick:g}" for tick in ticks], "claimed probability"),
        element("line", class_="ideal", x1=across(0), y1=up(0), x2=across(1), y2=up(1)),
    ]
    for p, share, count in zip(claimed, happened, counts, strict=True):
        if count:
            tip = f"claimed {p:.2f}, happened {share:.2f}, {count} cases"
            radius = 3 + 7 * math.sqrt(count / most)
            parts.append(
                element(
                    "circle", class_="dot c1", cx=across(p), cy=up(share), r=radius, data_tip=tip
                )
            )
    note = "On the diagonal, the model's confidence is right. Larger dots: more cases."
    return figure(title, picture(*parts, label=title), note=note)


def smooth(ys: Sequence[float], reach: int) -> list[float]:
    """Mean of each value and the up to `reach` values on either side of it."""
    windows = (ys[max(0, index - reach) : index + reach + 1] for index in range(len(ys)))
    return [math.fsum(window) / len(window) for window in windows]


def thin(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most 200 points: means of runs of neighbours, each at the last x of its run."""
    run = math.ceil(len(xs) / _MOST_POINTS) if xs else 1
    starts = range(0, len(xs), run)
    means = [math.fsum(ys[i : i + run]) / len(ys[i : i + run]) for i in starts]
    return [xs[min(i + run, len(xs)) - 1] for i in starts], means


def _finite(line: LineSeries) -> LineSeries:
    """The line without points that cannot be drawn."""
    kept = [index for index, y in enumerate(line.ys) if math.isfinite(y)]

    def pick(values: Sequence[float]) -> list[float]:
        return [values[index] for index in kept] if values else []

    xs, ys, low, high = (pick(values) for values in (line.xs, line.ys, line.low, line.high))
    return replace(line, xs=xs, ys=ys, low=low, high=high)


def _range(lines: Sequence[LineSeries]) -> tuple[float, float]:
    """From the least to the greatest value with some air; a flat line gets some too."""
    values = [y for line in lines for y in (*line.ys, *line.low, *line.high)]
    low, high = min(values), max(values)
    air = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (0.0 if 0 <= low < (high - low) * 0.4 else low - air), high + air


def _draw(line: LineSeries, across: Scale, up: Scale) -> Markup:
    parts = []
    if line.low:
        there = [(across(x), up(y)) for x, y in zip(line.xs, line.high, strict=True)]
        back = [(across(x), up(y)) for x, y in zip(line.xs, line.low, strict=True)]
        parts.append(
            element("path", class_=f"band {line.style}", d=_path(there + back[::-1]) + "Z")
        )
    spots = [(across(x), up(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    parts.append(element("path", class_=f"line {line.style}", d=_path(spots)))
    if line.marks:
        parts += [element("circle", class_=f"dot {line.style}", cx=x, cy=y, r=3) for x, y in spots]
    return Markup("").join(parts)


def _path(spots: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)


def _points(
    lines: Sequence[LineSeries], across: Scale, up: Scale, x_title: str, form: Format
) -> dict[str, object]:
    """For the script: pixels and texts of every point, by x."""
    columns: dict[float, list[list[object]]] = {}
    for line in lines:
        for index, (x, y) in enumerate(zip(line.xs, line.ys, strict=True)):
            text = f"{line.name} {form(y)}"
            if line.low:
                text += f" ({form(line.low[index])} to {form(line.high[index])})"
            columns.setdefault(x, []).append([line.style.split()[0], round(up(y), 1), text])
    rows = [[round(across(x), 1), f"{x_title} {number(x)}", columns[x]] for x in sorted(columns)]
    return {"bottom": HEIGHT - BOTTOM, "rows": rows}
