"""Charts as specifications of Vega-Lite: what altair's schema says of them, and what they show."""

import json
import re

import altair
import pytest
from markupsafe import escape

from posttrain.views.charts import (
    NUMBER,
    Chart,
    ChartRow,
    Series,
    calibration_chart,
    histogram,
    line_chart,
    row_chart,
)
from posttrain.views.charts.rows import _ticks

BAND = Series("b", 1, [0.5, 0.6], [1, 2], low=[0.4, 0.5], high=[0.6, 0.7], dots=True)
ROWS = [
    ChartRow("easy", "sft", 0, 0.4, "40%", 0.3, 0.5),
    ChartRow("easy", "rl", 1, 0.8, "80%", 0.7, 0.9),
    ChartRow("a_very_long_name_of_a_generator_indeed", "sft", 0, 0.1, "10%"),
]
CHARTS = [
    line_chart("lines", [Series("a", 0, [1.0, 3.0], [1, 2], faint=[2.0, 2.0]), BAND], x_title="k"),
    line_chart("log", [Series("a", 0, [0.1], [4], dash=True), BAND], x_title="k", log_x=True),
    histogram("counts", ["0%", "100%"], [Series("a", 2, [3, 4])], x_title="x", y_title="problems"),
    row_chart("shares", ROWS, whole=True),
    row_chart("rows", [ChartRow("why", "rows", 0, 3, "3")], mark="bar", unit=NUMBER),
    calibration_chart("calibration", [0.25], [(0.3, 0.2, 0.4)], [10]),
]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_every_kind_is_what_the_schema_of_vega_lite_asks_for(chart):
    altair.LayerChart.from_dict(dict(chart.spec))


def rows_of(chart):
    return chart.spec["data"]["values"]


def test_a_line_chart_has_a_row_for_each_x_and_tells_all_lines_there():
    chart = line_chart("t", [Series("a", 0, [1.0, 3.0], [1, 5]), BAND], x_title="step")
    assert rows_of(chart) == [
        {"x": 1, "y0": 1.0, "y1": 0.5, "l1": 0.4, "h1": 0.6},
        {"x": 2, "y1": 0.6, "l1": 0.5, "h1": 0.7},
        {"x": 5, "y0": 3.0},
    ]
    told = chart.spec["layer"][-1]["encoding"]["tooltip"]
    assert [each["title"] for each in told] == ["step", "a", "b"]


def test_lines_keep_their_colors_and_only_whole_ones_are_named():
    lines = [Series("a", 3, [1.0], [1]), Series("a, dashed", 3, [1.0], [1], dash=True)]
    spec = line_chart("t", lines, x_title="x").spec
    first, dashed, _ = spec["layer"]
    assert spec["encoding"]["color"]["scale"] == {"domain": ["a"], "range": ["var(--c3)"]}
    assert first["encoding"]["color"] == {"datum": "a"}
    assert dashed["encoding"]["color"] == {"value": "var(--c3)"}


def test_no_label_is_cut():
    for chart in CHARTS:
        config = chart.spec["config"]
        assert config["axis"]["labelLimit"] == config["legend"]["labelLimit"] == 0
    names = row_chart("t", ROWS).spec["layer"][0]
    assert [row["label"] for row in names["data"]["values"]] == [
        "easy",
        "a_very_long_name_of_a_generator_indeed",
    ]


def test_rows_that_stand_together_are_as_high_as_there_are_of_them():
    """17 pixels a row and 20 for the name above: two labels of two rows, and one below."""
    assert row_chart("t", ROWS).spec["height"] == (2 * 17 + 20) * 2 + 20
    assert row_chart("t", ROWS[:1]).spec["height"] == 17 + 20 + 20


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0, 1, [0, 0.5, 1.0]), (0.42, 0.79, [0.5, 0.6, 0.7]), (0, 93, [0, 50]), (0, 3, [0, 1, 2, 3])],
)
def test_ticks_are_round(low, high, ticks):
    assert _ticks(low, high) == pytest.approx(ticks)


def test_text_cannot_leave_its_place():
    hostile = '</script><script>alert("x")</script>'
    drawn = escape(Chart(hostile, {"height": 10, "data": hostile}, hostile))
    assert "<script>" not in drawn
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', drawn)
    assert json.loads(data)["data"] == hostile
