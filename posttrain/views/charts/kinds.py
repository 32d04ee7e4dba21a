"""Charts over an axis: curves, histograms, and what was claimed against what happened."""

from collections.abc import Sequence

from posttrain.views.charts.chart import (
    NUMBER,
    SHARE,
    Chart,
    Json,
    Series,
    Unit,
    color_of,
    color_scale,
    plot,
    value_axis,
)

_POINTED = "pointed"
"""The selection of what is under the pointer."""
_HALF_WAY = "isValid(datum.{0})?(datum.x+datum.{0})/2:datum.x"


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
    """Draw `lines` over a common x, each with its band; the pointer shows all of a step.

    Args:
        title: Of the figure.
        lines: With as many `xs` as values, in their order.
        x_title: What the axis means.
        unit: Of the values.
        y_range: Least and greatest value that are shown; None takes them from the values.
        log_x: Space x by its logarithm, and mark every x there is.
        note: How to read it.

    Returns:
        The chart.

    """
    columns = _columns(lines)
    across: Json = {
        "field": "x",
        "type": "quantitative",
        "title": x_title,
        "axis": {"grid": False, "tickMinStep": 1, "tickCount": 6},
        "scale": {"zero": False, "nice": False},
    }
    if log_x:
        across["scale"] = {"type": "log", "base": 2, "nice": False}
        across["axis"] = {"grid": False, "format": "d", "values": [row["x"] for row in columns]}
    scale: Json = {"zero": False} if y_range is None else {"domain": list(y_range)}
    up: Json = {"type": "quantitative", "title": None, "scale": scale}
    up |= {"axis": value_axis(unit)}
    layers = [layer for index, line in enumerate(lines) for layer in _line(index, line, up)]
    named: Json = {"type": "nominal"}
    named |= color_scale([(line.name, line.color) for line in lines if not line.dash])
    layers.append(_under_pointer(lines, unit, across))
    return Chart(
        title, plot(layers, data={"values": columns}, encoding={"x": across, "color": named}), note
    )


def _columns(lines: Sequence[Series]) -> list[Json]:
    """One row for each x: value, ends of the interval and what is behind, by the line's place."""
    rows: dict[float, Json] = {}
    for index, line in enumerate(lines):
        parts = {"y": line.values, "l": line.low, "h": line.high, "f": line.faint}
        for letter, values in parts.items():
            for x, value in zip(line.xs, values, strict=False):
                rows.setdefault(x, {"x": x})[f"{letter}{index}"] = _rounded(value)
    return [rows[x] for x in sorted(rows)]


def _rounded(value: float) -> float:
    """Five digits: more cannot be seen, and a page has thousands of values."""
    return float(f"{value:.5g}")


def _line(index: int, line: Series, up: Json) -> list[Json]:
    """A line with what lies behind it."""
    named = {"datum": line.name}
    value = {**up, "field": f"y{index}"}
    own = {"value": color_of(line.color)} if line.dash else dict(named)
    made: list[Json] = []
    if line.faint:
        faint = {**up, "field": f"f{index}"}
        mark = {"type": "line", "strokeWidth": 1, "opacity": 0.32}
        made.append({"mark": mark, "encoding": {"y": faint, "color": dict(own)}})
    if line.low:
        ends = {"y": {**up, "field": f"l{index}"}, "y2": {"field": f"h{index}"}}
        band = {"type": "area", "opacity": 0.16}
        made.append({"mark": band, "encoding": {**ends, "color": dict(own)}})
    drawn: Json = {"type": "line", "strokeWidth": 2, "invalid": "filter"}
    drawn |= {"strokeDash": [2, 4]} if line.dash else {}
    drawn |= {"point": {"size": 40, "filled": True}} if line.dots else {}
    return [*made, {"mark": drawn, "encoding": {"y": value, "color": own}}]


def _under_pointer(lines: Sequence[Series], unit: Unit, across: Json) -> Json:
    """A strip around each x, which tells the value of every line there and lights up."""
    told: list[Json] = [{"field": "x", "type": "quantitative", "title": across["title"]}]
    halves = {"a": _HALF_WAY.format("before"), "b": _HALF_WAY.format("after")}
    computed: list[Json] = [
        {
            "window": [
                {"op": "lag", "field": "x", "as": "before"},
                {"op": "lead", "field": "x", "as": "after"},
            ]
        },
        *({"calculate": expression, "as": name} for name, expression in halves.items()),
    ]
    for index, line in enumerate(lines):
        if not line.low:
            told.append({"field": f"y{index}", "title": line.name, "format": unit.full})
            told[-1]["type"] = "quantitative"
            continue
        computed.append({"calculate": _with_interval(index, unit), "as": f"t{index}"})
        told.append({"field": f"t{index}", "type": "nominal", "title": line.name})
    # Not Vega-Lite's own way to the nearest point: there texts are undefined in a tooltip.
    pointed = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    lit = {"condition": {"param": _POINTED, "empty": False, "value": 0.12}, "value": 0}
    return {
        "transform": computed,
        "params": [{"name": _POINTED, "select": pointed}],
        "mark": {"type": "rect", "color": "var(--soft)"},
        "encoding": {
            "x": {**across, "field": "a"},
            "x2": {"field": "b"},
            "opacity": lit,
            "tooltip": told,
        },
    }


def _with_interval(index: int, unit: Unit) -> str:
    """The expression that writes a value with its interval."""
    value, low, high = (f"format(datum.{letter}{index},'{unit.full}')" for letter in "ylh")
    return f"{value}+' ['+{low}+', '+{high}+']'"


def histogram(
    title: str,
    labels: Sequence[str],
    groups: Sequence[Series],
    *,
    x_title: str,
    y_title: str,
    every: int = 1,
    note: str = "",
) -> Chart:
    """Draw counts side by side at each label.

    Args:
        title: Of the figure.
        labels: Of the bins, each another one.
        groups: A count for each label.
        x_title: What the bins are of.
        y_title: What is counted.
        every: Label every so manieth bin on the axis; the pointer shows all.
        note: How to read it.

    Returns:
        The chart.

    """
    rows = [
        {"bin": label, "series": group.name, "count": count}
        for group in groups
        for label, count in zip(labels, group.values, strict=True)
    ]
    bins = {"field": "bin", "type": "ordinal", "title": x_title}
    axis = {"labelAngle": 0, "values": list(labels[::every]), "labelOverlap": True}
    encoding: Json = {
        "x": {**bins, "axis": axis, "sort": None},
        "xOffset": {"field": "series", "sort": [group.name for group in groups]},
        "y": {
            "field": "count",
            "type": "quantitative",
            "title": None,
            "axis": value_axis(NUMBER),
        },
        "color": {
            "field": "series",
            "type": "nominal",
            **color_scale([(group.name, group.color) for group in groups]),
        },
        "tooltip": [
            bins,
            {"field": "series", "type": "nominal", "title": "of"},
            {"field": "count", "type": "quantitative", "title": y_title, "format": ","},
        ],
    }
    bars = {"mark": {"type": "bar", "cornerRadiusEnd": 1.5}, "encoding": encoding}
    return Chart(title, plot([bars], data={"values": rows}), note)


def calibration_chart(
    title: str,
    claimed: Sequence[float],
    happened: Sequence[tuple[float, float, float]],
    counts: Sequence[int],
) -> Chart:
    """Draw what was claimed against what happened; the area of a dot is the number of cases.

    Args:
        title: Of the figure.
        claimed: Mean probability of each bin.
        happened: Share with the ends of its 95% interval.
        counts: Cases of each bin, above 0.

    Returns:
        The chart.

    """
    rows = [
        {"claimed": p, "happened": share, "low": low, "high": high, "cases": count}
        for p, (share, low, high), count in zip(claimed, happened, counts, strict=True)
    ]
    told = [
        {"field": "claimed", "type": "quantitative", "format": SHARE.full},
        *(
            {"field": field, "type": "quantitative", "title": words, "format": SHARE.full}
            for field, words in (("happened", "happened"), ("low", "95% from"), ("high", "95% to"))
        ),
        {"field": "cases", "type": "quantitative", "format": ","},
    ]

    def of(field: str, name: str | None) -> Json:
        return {
            "field": field,
            "type": "quantitative",
            "title": name,
            "scale": {"domain": [0, 1]},
            "axis": {"format": SHARE.axis, "tickCount": 5},
        }

    across, up = of("claimed", "claimed probability"), of("happened", None)
    color = {"value": color_of(1)}
    ends = {"x": across, "y": of("low", None), "y2": {"field": "high"}}
    size: Json = {"field": "cases", "type": "quantitative", "legend": None}
    size["scale"] = {"range": [30, 300], "zero": True}
    layers: list[Json] = [
        {
            "data": {"values": [{"claimed": 0, "happened": 0}, {"claimed": 1, "happened": 1}]},
            "mark": {"type": "line", "color": "var(--soft)", "strokeDash": [3, 4]},
            "encoding": {"x": across, "y": up},
        },
        {"mark": {"type": "rule", "opacity": 0.5}, "encoding": {**ends, "color": color}},
        {
            "mark": {"type": "circle", "opacity": 0.9},
            "encoding": {"x": across, "y": up, "size": size, "color": color, "tooltip": told},
        },
    ]
    note = (
        "On the diagonal, the model's confidence is right. Larger dots: more cases; lines are 95%"
        " intervals."
    )
    return Chart(title, plot(layers, data={"values": rows}), note)
