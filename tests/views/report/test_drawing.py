"""Scales, numbers and shapes, by hand."""

import json
import math
import re

import pytest
from markupsafe import Markup

from posttrain.views.report.bars import Bars, bar_chart, count_chart, interval_chart, share_labels
from posttrain.views.report.bars import IntervalRow as Row
from posttrain.views.report.lines import LineSeries, calibration_chart, line_chart, smooth, thin
from posttrain.views.report.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    element,
    short_number,
    tick_values,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(9000, "9,000"), (15000, "15k"), (2.5e6, "2.5M"), (-40000, "-40k"), (0.25, "0.25")],
)
def test_axes_write_large_numbers_short(value: float, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (1, 60, [20, 40, 60]),
        (0, 93, [0, 20, 40, 60, 80]),
        (-0.03, 0.03, [-0.02, 0, 0.02]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert tick_values(low, high) == pytest.approx(ticks)


def test_scales_map_ends_middle_and_ratios() -> None:
    assert [Scale(0, 10, 100, 200)(value) for value in (0, 5, 10)] == [100, 150, 200]
    assert [Scale(1, 16, 0, 400, log=True)(k) for k in (1, 2, 4, 16)] == [0, 100, 200, 400]
    assert Scale(7, 7, 0, 400)(7) == 200


def test_text_and_attributes_are_escaped() -> None:
    drawn = element("text", '<b>"&', data_tip='"><script>', class_="a")
    assert drawn == (
        '<text data-tip="&#34;&gt;&lt;script&gt;" class="a">&lt;b&gt;&#34;&amp;</text>'
    )
    assert element("g", Markup("<i></i>")) == "<g><i></i></g>"


def test_smoothing_is_centred() -> None:
    assert smooth([0, 3, 6, 9, 12], 1) == [1.5, 3, 6, 9, 10.5]
    assert smooth([5, 1], 0) == [5, 1]


def test_thinning_keeps_means_and_the_last_step() -> None:
    xs, ys = thin(list(range(1, 402)), [float(x) for x in range(1, 402)])
    assert len(xs) == 134
    assert (xs[0], ys[0]) == (3, 2.0)
    assert (xs[-1], ys[-1]) == (401, 400.5)
    assert thin([1, 2], [5.0, 6.0]) == ([1, 2], [5.0, 6.0])


def test_a_line_goes_where_its_values_are() -> None:
    line = LineSeries("a", [0, 50, 100], [0.0, 1.0, math.nan], "c1")
    chart = line_chart("t", [line], x_title="step", y_range=(0.0, 1.0))
    bottom, left = HEIGHT - BOTTOM, LEFT
    # The point that is not a number is gone, so 50 is the last x.
    assert f'd="M{left:.1f} {bottom:.1f}L{WIDTH - RIGHT:.1f} {TOP:.1f}"' in chart
    points = json.loads(re.search(r'data-points="([^"]*)"', chart)[1].replace("&#34;", '"'))
    assert points["rows"] == [
        [left, "step 0", [["c1", bottom, "a 0"]]],
        [WIDTH - RIGHT, "step 50", [["c1", TOP, "a 1"]]],
    ]


def test_a_line_without_points_is_no_chart() -> None:
    assert line_chart("t", [LineSeries("a", [1], [math.nan], "c0")], x_title="step") == ""


def test_a_flat_line_has_room_above_and_below() -> None:
    chart = line_chart("t", [LineSeries("a", [1, 2], [3.0, 3.0], "c0")], x_title="step")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert re.findall(r'class="line c0" d="M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)"', chart) == [
        (f"{middle:.1f}", f"{middle:.1f}")
    ]


def test_bars_are_as_high_as_their_values() -> None:
    groups = [Bars("a", [1.0, 0.5], "c0", [0.9, 0.4], [1.0, 0.6]), Bars("b", [0.0, 0.25], "c1")]
    chart = bar_chart("t", ["x", "y"], groups, x_title="source", top=1.0)
    plot = HEIGHT - TOP - BOTTOM
    heights = [float(height) for height in re.findall(r' height="([\d.]+)" rx', chart)]
    assert heights == [plot, plot / 2, 0, plot / 4]
    assert 'data-tip="y, a: 0.5 (0.4 to 0.6)"' in chart
    assert chart.count('class="whisker"') == 2


def test_labels_that_would_collide_are_cut() -> None:
    labels = ["a_very_long_generator_name_indeed", "b", "c", "d", "e", "f"]
    chart = bar_chart("t", labels, [Bars("n", [1.0] * 6, "c0")], x_title="source")
    # 320 pixels for six labels: room for eight letters of 6.4 pixels each, one a gap.
    assert ">a_very\N{HORIZONTAL ELLIPSIS}<" in chart
    assert 'data-tip="a_very_long_generator_name_indeed, n: 1"' in chart


def test_share_labels_name_the_ends() -> None:
    assert share_labels(4) == ["0%", "25%", "50%", "75%", "100%"]
    labels = share_labels(16)
    assert (labels[0], labels[1], labels[4], labels[16]) == ("0%", "", "25%", "100%")


def test_intervals_and_counts_say_their_values() -> None:
    chart = interval_chart("t", [Row("rl", 0.8, 0.75, 0.85, "c1")])
    assert 'data-tip="rl: 80.0% (75.0% to 85.0%)"' in chart
    assert ">1,200<" in count_chart("t", [("too long", 1200), ("duplicate", 3)])


def test_calibration_leaves_out_empty_bins() -> None:
    chart = calibration_chart("t", [0.2, 0.8], [0.25, 0.75], [0, 4])
    assert chart.count("<circle") == 1
    assert "claimed 0.80, happened 0.75, 4 cases" in chart
