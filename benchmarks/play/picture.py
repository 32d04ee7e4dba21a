"""A picture of what RL learned by playing: SFT and RL by world and seed, between the bounds."""

from collections.abc import Mapping
from typing import Any

from benchmarks.drawing import Dot, Line, Mark, Text, drawing

WIDTH, LEFT, RIGHT, ROW, GAP, TOP, BOTTOM = 720, 130, 24, 15, 16, 34, 30


def drawn(figures: Mapping[str, Any]) -> str:
    """Draw the figures as one SVG.

    Args:
        figures: By name of a recipe: its bounds and seeds, as `benchmarks.play` keeps them.

    Returns:
        The picture: a row for each seed, SFT in gray and RL in blue with their 95% intervals, and
        dashed lines where the random player and the script are.

    """
    marks: list[Mark] = []
    y = float(TOP)
    for name, each in figures.items():
        height = ROW * len(each["seeds"])
        marks.append(Text("name", LEFT - 12, y + height / 2 + 4, name, "end"))
        for by in ("random", "script"):
            x = _across(each[by]["solved"])
            marks.append(Line("bound", x, y - 4, x, y + height + 2))
        for place, told in enumerate(each["seeds"].values()):
            middle = y + ROW * (place + 0.5)
            for policy, style in (("sft", "c1"), ("rl", "c2")):
                value, low, high = told[policy]
                marks.append(Line(f"span {style}", _across(low), middle, _across(high), middle))
                marks.append(Dot(style, _across(value), middle, 3.5))
        y += height + GAP
    bottom = y - GAP + 8
    grid: list[Mark] = []
    for tick in range(0, 101, 20):
        x = _across(tick / 100)
        grid.append(Line("rule", x, TOP - 6, x, bottom))
        grid.append(Text("tick", x, bottom + 16, f"{tick}%", "middle"))
    legend: list[Mark] = [
        Dot("c1", LEFT, 14, 4), Text("tick", LEFT + 9, 18, "after SFT"),
        Dot("c2", LEFT + 90, 14, 4), Text("tick", LEFT + 99, 18, "after RL"),
        Line("bound", LEFT + 170, 8, LEFT + 170, 20),
        Text("tick", LEFT + 179, 18, "random player, and script; a row is a seed, bars are 95%"),
    ]  # fmt: skip
    return drawing(
        [*grid, *marks, *legend], WIDTH, bottom + BOTTOM, "Success after SFT and after RL"
    )


def _across(share: float) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * share
