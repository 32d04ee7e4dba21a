"""Drawing in SVG: elements, scales, axes and figures that a style sheet colors.

Charts are drawn here, in Python, so that the page shows them without a script or a network, prints
them, and follows the reader's light or dark theme. The script of the page only adds what appears
under the pointer. All numbers are pixels of the view box unless they are called values.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from posttrain.stage.formatting import number

WIDTH, HEIGHT = 380, 226
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 10, 36

Format = Callable[[float], str]


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """An element; text is escaped, `class_` and `data_tip` become `class` and `data-tip`."""
    fields = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_attribute(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(escape(child) for child in children)
    return Markup(f"<{name}{fields}>{inside}</{name}>")  # noqa: S704 - every part is escaped above


def _attribute(value: object) -> object:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def short_number(value: float) -> str:
    """A figure for an axis: thousands and millions by a letter."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if 10_000 <= abs(value) < 1e9 and abs(value) >= size:
            return f"{value / size:g}{letter}"
    return number(value)


def percent(value: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * value:.1f}%"


def whole_percent(value: float) -> str:
    """A share as a whole percentage, for axes."""
    return f"{100 * value:.0f}%"


@dataclass(frozen=True)
class Unit:
    """How values are written: in full under the pointer, short on the axis."""

    full: Format
    axis: Format


NUMBER = Unit(number, short_number)
SHARE = Unit(percent, whole_percent)


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
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; all of an empty range lies in the middle."""
        low, high, at = (self.low, self.high, value)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        share = 0.5 if high == low else (at - low) / (high - low)
        return self.start + share * (self.stop - self.start)


def horizontal(low: float, high: float, *, log: bool = False, inset: float = 0.0) -> Scale:
    """The scale of the x axis."""
    return Scale(low, high, LEFT + inset, WIDTH - RIGHT - inset, log)


def vertical(low: float, high: float) -> Scale:
    """The scale of the y axis, which grows upwards."""
    return Scale(low, high, HEIGHT - BOTTOM, TOP)


def y_axis(scale: Scale, form: Format) -> Markup:
    """Horizontal grid lines with their labels."""
    parts = []
    for value in tick_values(scale.low, scale.high):
        y = scale(value)
        parts.append(element("line", class_="rule", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y))
        parts.append(element("text", form(value), class_="tick", x=LEFT - 6, y=y + 4, **_END))
    return Markup("").join(parts)


def x_axis(scale: Scale, values: Sequence[float], labels: Sequence[str], title: str) -> Markup:
    """Labels below the plot, and what the axis means."""
    y = HEIGHT - BOTTOM
    parts = [element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)]
    for value, label in zip(values, labels, strict=True):
        parts.append(element("text", label, class_="tick", x=scale(value), y=y + 15, **_MIDDLE))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(element("text", title, class_="label", x=middle, y=HEIGHT - 4, **_MIDDLE))
    return Markup("").join(parts)


_END: Mapping[str, object] = {"text_anchor": "end"}
_MIDDLE: Mapping[str, object] = {"text_anchor": "middle"}


def picture(*parts: str, height: float = HEIGHT, points: object = None, label: str = "") -> Markup:
    """The drawing itself; `points` is what the script shows under the pointer."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=label,
        data_points=json.dumps(points, separators=(",", ":")) if points else None,
    )


def figure(title: str, drawing: Markup, *, legend: Markup = Markup(""), note: str = "") -> Markup:  # noqa: B008
    """A drawing with its title, its legend, and a line that says how to read it."""
    caption = element("figcaption", title)
    remark = element("p", note, class_="note") if note else Markup("")
    return element("figure", caption, legend, drawing, remark, class_="chart")


def legend(names: Sequence[tuple[str, str]]) -> Markup:
    """Names beside their marks; each is (name, class of its color and style)."""
    if len(names) < 2:
        return Markup("")
    items = [element("span", element("i", class_=style), name) for name, style in names]
    return element("div", *items, class_="legend")
