"""What the pictures of benchmarks share: their colors, and the frame around their marks."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import escape

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #5d6570; } text.name { fill: #1d2127; font-weight: 600; }
.rule { stroke: #e4e1db; } .bound { stroke: #7b8794; stroke-dasharray: 3 3; stroke-width: 1.5; }
.c1 { fill: #7b8794; stroke: #7b8794; } .c2 { fill: #2f6fde; stroke: #2f6fde; } .c3 { fill: #c2571a; stroke: #c2571a; }
path { stroke-width: 2; } path.line { fill: none; } path.band { stroke: none; opacity: .16; }
.span { stroke-width: 4; stroke-linecap: round; opacity: .45; }
.paper { fill: #fbfaf8; }
@media (prefers-color-scheme: dark) {
  text { fill: #9aa3ae; } text.name { fill: #e8eaed; } .rule { stroke: #2d333b; } .paper { fill: #14171b; }
  .c1 { fill: #8f9ba8; stroke: #8f9ba8; } .c2 { fill: #6ea4ff; stroke: #6ea4ff; } .c3 { fill: #f0955c; stroke: #f0955c; }
}
"""  # noqa: E501 - a style sheet


class Line(NamedTuple):
    """A straight line."""

    style: str
    x1: float
    y1: float
    x2: float
    y2: float


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


class Text(NamedTuple):
    """Words on a base line."""

    style: str
    x: float
    y: float
    words: str
    anchor: str = "start"


Mark = Line | Path | Dot | Text


def drawing(marks: Sequence[Mark], width: float, height: float, label: str) -> str:
    """Put marks into one SVG that follows its reader's light or dark theme.

    Args:
        marks: What is drawn, the lowest first.
        width: Of the view box, pixels.
        height: Of the view box, pixels.
        label: What the picture shows, for who cannot see it.

    Returns:
        The SVG's text.

    """
    body = "".join(map(_spelled, marks))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' aria-label="{label}"><style>{_STYLE}</style>'
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>{body}</svg>\n'
    )


def _spelled(mark: Mark) -> str:
    match mark:
        case Line(style, x1, y1, x2, y2):
            ends = f'x1="{_pixels(x1)}" y1="{_pixels(y1)}" x2="{_pixels(x2)}" y2="{_pixels(y2)}"'
            return f'<line class="{style}" {ends}/>'
        case Path(style, spots, closed):
            way = "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)
            return f'<path class="{style}" d="M{way}{"Z" if closed else ""}"/>'
        case Dot(style, x, y, radius):
            place = f'cx="{_pixels(x)}" cy="{_pixels(y)}" r="{_pixels(radius)}"'
            return f'<circle class="dot {style}" {place}/>'
        case Text(style, x, y, words, anchor):
            place = f'x="{_pixels(x)}" y="{_pixels(y)}" text-anchor="{anchor}"'
            return f'<text class="{style}" {place}>{escape(words)}</text>'


def _pixels(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
