"""What every chart is made of: a specification of Vega-Lite, and how it looks.

Specifications are plain objects, as JSON has them, and not altair's: those of a report take altair
seconds to build and to check, and every run writes a report. A test holds each kind of chart
against the schema that altair ships.

Colors are named by the variables of the style sheet (``var(--c1)``), which a browser looks up when
it paints: a chart that is drawn follows the reader's light or dark theme.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from markupsafe import Markup

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT = 170
"""Of a plot, in pixels; its width is that of the place where it stands."""
NUM_COLORS = 8
_INK, _SOFT, _RULE = "var(--ink)", "var(--soft)", "var(--rule)"

Json = dict[str, Any]

CONFIG: Json = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": _SOFT,
        "titleColor": _SOFT,
        "domainColor": _SOFT,
        "gridColor": _RULE,
        "tickColor": _RULE,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 0,
        "titleLimit": 0,
    },
    "legend": {
        "orient": "top",
        "direction": "vertical",
        "title": None,
        "labelColor": _INK,
        "labelFontSize": 12,
        "labelLimit": 0,
        "offset": 8,
    },
    "text": {"fill": _INK, "fontSize": 12},
}
"""How all charts look. No limit cuts a label, a title or the name of a series."""


class Unit(NamedTuple):
    """How values are written, by the formats of D3: under the pointer, and short on an axis."""

    full: str
    axis: str | None
    """None leaves it to Vega, which goes by the distance of the ticks."""


_SHORT = "datum.value!=0&&abs(datum.value)<0.001?format(datum.value,'~e'):datum.label"
"""What is too small to be written out is written by its power of ten."""
NUMBER = Unit(",.4~g", None)
SHARE = Unit(".1%", "~%")


@dataclass(frozen=True)
class Series:
    """Values of one name; `color` is its place among the colors of the page.

    `low` and `high` draw a band, `dots` shows the single points of a line, `dash` breaks it.
    """

    name: str
    color: int
    values: Sequence[float]
    xs: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dots: bool = False
    dash: bool = False
    faint: Sequence[float] = ()
    """What the values are the mean of, drawn behind them."""


@dataclass(frozen=True)
class Chart:
    """A specification of Vega-Lite with a title, and a note that says how to read it."""

    title: str
    spec: Mapping[str, Any]
    note: str = ""

    def __html__(self) -> str:
        """Return the figure, as templates ask for it; the scripts of the page draw into it."""
        note = Markup('<p class="note">{}</p>').format(self.note) if self.note else ""
        text = json.dumps(self.spec, separators=(",", ":"), allow_nan=False)
        return Markup(
            '<figure class="chart"><figcaption>{}</figcaption>'
            '<div class="plot" style="min-height:{}px" role="img" aria-label="{}"></div>'
            '<script type="application/json">{}</script>{}</figure>'
        ).format(self.title, _plot_height(self.spec), self.title, Markup(in_script(text)), note)


def _plot_height(spec: Mapping[str, Any]) -> int:
    height = spec["height"]
    return height if isinstance(height, int) else 0


def in_script(text: str) -> str:
    """Write JSON so that it cannot end the script element that it stands in.

    Args:
        text: JSON.

    Returns:
        The same value.

    """
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def color_of(index: int) -> str:
    """Name a color of the page by its place; there are eight, and then the first comes again."""
    return f"var(--c{index % NUM_COLORS})"


def plot(layers: Sequence[Json], *, height: int = HEIGHT, **more: Any) -> Json:
    """Put layers into one plot as wide as its place.

    Args:
        layers: Marks with their encodings, the lowest first.
        height: In pixels.
        more: Further members of the specification.

    Returns:
        The specification.

    """
    return {
        "$schema": SCHEMA,
        "config": CONFIG,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
        **more,
    }


def value_axis(unit: Unit) -> Json:
    """Describe an axis of values: lines across the plot and labels, and nothing else."""
    form = {"labelExpr": _SHORT} if unit.axis is None else {"format": unit.axis}
    return {"tickCount": 5, "domain": False, "ticks": False, **form}


def color_scale(series: Sequence[tuple[str, int]]) -> Json:
    """Encode names by their colors; a single name has no legend, as the title has it."""
    names = [name for name, _ in series]
    scale = {"domain": names, "range": [color_of(color) for _, color in series]}
    legend = {"symbolType": "circle", "symbolOpacity": 1} if len(names) > 1 else None
    return {"scale": scale, "legend": legend}
