"""The pictures of the two questions: pass@k of RL and of its start, and what which tokens teach."""

import math
from collections.abc import Mapping, Sequence

from benchmarks.drawing import Dot, Line, Mark, Path, Text, drawing

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 720, 60, 24, 40, 46
_HEIGHT, _ROW = 300, 40
Span = Sequence[float]
"""Value, and the two ends of its 95% interval."""


def pass_at_k(ks: Sequence[int], curves: Mapping[str, Sequence[Span]], crossing: Span) -> str:
    """Draw pass@k of RL and of its start over k, with the band in which they cross.

    Args:
        ks: Numbers of samples, rising.
        curves: By name of a policy: at each k the mean over the runs with its interval.
        crossing: Where the curves cross, and between which k that is.

    Returns:
        The SVG.

    """
    floor, right = _HEIGHT - BOTTOM, WIDTH - RIGHT
    least = math.floor(10 * min(low for curve in curves.values() for _, low, _ in curve)) / 10

    def across(k: float) -> float:
        return LEFT + (right - LEFT) * math.log2(k) / math.log2(ks[-1])

    def up(value: float) -> float:
        return TOP + (floor - TOP) * (1 - value) / (1 - least)

    marks: list[Mark] = []
    for tenth in range(round(10 * least), 11):
        marks += [
            Line("rule", LEFT, up(tenth / 10), right, up(tenth / 10)),
            Text("tick", LEFT - 8, up(tenth / 10) + 4, f"{10 * tenth}%", "end"),
        ]
    marks += [Text("tick", across(k), floor + 18, str(k), "middle") for k in ks]
    marks.append(Text("tick", (LEFT + right) / 2, floor + 36, "samples k", "middle"))
    met, *ends = (across(min(k, ks[-1])) for k in crossing)
    marks.append(Line("bound", met, TOP, met, floor))
    marks.append(Line("span c1", ends[0], floor, ends[1], floor))
    for place, (name, curve) in enumerate(curves.items()):
        style = f"c{place + 1}"
        upper = [(across(k), up(high)) for k, (_, _, high) in zip(ks, curve, strict=True)]
        lower = [(across(k), up(low)) for k, (_, low, _) in zip(ks, curve, strict=True)]
        spots = [(across(k), up(value)) for k, (value, _, _) in zip(ks, curve, strict=True)]
        marks += [
            Path(f"band {style}", [*upper, *lower[::-1]], closed=True),
            Path(f"line {style}", spots),
            *(Dot(style, *spot, 3) for spot in spots),
            Dot(style, LEFT + 100 * place, 18, 4),
            Text("name", LEFT + 100 * place + 9, 22, name),
        ]
    marks += [
        Line("bound", LEFT + 210, 10, LEFT + 210, 26),
        Text("tick", LEFT + 219, 22, "they cross; bands and the bar below are 95% over the runs"),
    ]
    return drawing(marks, WIDTH, _HEIGHT, "pass@k after SFT and after RL")


def by_tokens(start: Span, arms: Mapping[str, Sequence[float]], means: Mapping[str, Span]) -> str:
    """Draw pass@1 by the tokens that were learned from: a dot for each run, and the mean.

    Args:
        start: pass@1 of the policy that all runs started from.
        arms: By name: pass@1 of each run.
        means: By name: the mean over the runs with its interval.

    Returns:
        The SVG.

    """
    left, right = LEFT + 130, WIDTH - RIGHT
    height = TOP + _ROW * len(arms) + BOTTOM
    everything = [start[0], *(value for runs in arms.values() for value in runs)]
    least, most = math.floor(10 * min(everything)) / 10, math.ceil(10 * max(everything)) / 10

    def across(value: float) -> float:
        return left + (right - left) * (value - least) / (most - least)

    floor = height - BOTTOM
    marks: list[Mark] = []
    for tenth in range(round(10 * least), round(10 * most) + 1):
        marks += [
            Line("rule", across(tenth / 10), TOP - 6, across(tenth / 10), floor),
            Text("tick", across(tenth / 10), floor + 18, f"{10 * tenth}%", "middle"),
        ]
    marks += [
        Text("tick", (left + right) / 2, floor + 36, "pass@1", "middle"),
        Line("bound", across(start[0]), TOP - 6, across(start[0]), floor),
    ]
    for place, (name, runs) in enumerate(arms.items()):
        middle = TOP + _ROW * (place + 0.4)
        value, low, high = means[name]
        marks += [
            Text("name", left - 12, middle + 4, name, "end"),
            Line("span c2", across(low), middle, across(high), middle),
            Dot("c2", across(value), middle, 5),
            *(Dot("c1", across(run), middle + 11, 2.5) for run in runs),
        ]
    marks += [
        Dot("c2", left, 14, 4), Text("tick", left + 9, 18, "mean, 95% over runs"),
        Dot("c1", left + 150, 14, 2.5), Text("tick", left + 159, 18, "a run"),
        Line("bound", left + 210, 6, left + 210, 22), Text("tick", left + 219, 18, "before RL"),
    ]  # fmt: skip
    return drawing(marks, WIDTH, height, "pass@1 by the tokens that RL learned from")
