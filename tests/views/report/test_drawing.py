"""Scales, numbers and shapes, by hand."""

import json
import math
import re
from unittest.mock import ANY

import polars as pl
import pytest
from markupsafe import escape

from posttrain.views.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Chart,
    Scale,
    Series,
    bar_chart,
    calibration_chart,
    count_chart,
    interval_chart,
    line_chart,
    share_labels,
    short_number,
    tick_values,
)
from posttrain.views.report.components import components_chart
from posttrain.views.report.training import panel, trainings


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
    groups = [Series('"><script>', "c1", [1.0]), Series("b", "c2", [1.0])]
    drawn = escape(bar_chart("<b>", ['&"x'], groups, x_title="<i>"))
    assert 'data-tip="&amp;&#34;x, &#34;&gt;&lt;script&gt;: 1"' in drawn
    assert "<figcaption>&lt;b&gt;</figcaption>" in drawn
    assert ">&lt;i&gt;</text>" in drawn
    assert "<script>" not in drawn


def curve(values: list[float], first: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"step": range(first, first + len(values)), "value": values})


def told(chart: Chart) -> list[str]:
    """What the script shows of each point."""
    return [text for _, _, shown in chart.points for *_, text in shown]


def test_a_curve_is_shown_by_its_running_mean() -> None:
    """Of fifteen values the mean is of three, at the ends of two."""
    values = [0.0, 3.0, 6.0, 9.0, 12.0] + [0.0] * 10
    shown = [text.split()[1] for text in told(panel("loss", curve(values)))]
    assert shown[:6] == ["1.5", "3", "6", "9", "7", "4"]
    assert told(panel("learning_rate", curve(values)))[:2] == ["learning_rate 0", "learning_rate 3"]
    assert told(panel("loss", curve([5.0, 1.0]))) == ["loss 5", "loss 1"]


def test_the_components_of_a_reward_stand_in_one_picture_each_on_its_own_range() -> None:
    """The proxy rises by 4 while the gold falls by a fifth: both cross the whole picture."""
    curves = {
        "rl/reward": curve([0.0, 1.0, 2.0]),
        "rl/reward/gold": curve([0.5, 0.4, 0.3]),
        "rl/reward/gold/deviation": curve([0.1, 0.1, 0.1]),
        "rl/reward/proxy": curve([-3.0, 0.0, 1.0]),
        "rl/reward/proxy/deviation": curve([1.0, 1.0, 1.0]),
        "rl/reward/flat": curve([2.0, 2.0, 2.0]),
        "rl/reward/flat/deviation": curve([0.0, 0.0, 0.0]),
        "rl/reward/multiplier/gold": curve([0.0, 1.0, 2.0]),
    }
    chart = components_chart(curves)
    assert chart is not None
    assert [name for name, _ in chart.legend] == ["gold (0.3 to 0.5)", "proxy (-3 to 1)"]
    shown = [[text.rsplit(" ", 1)[1] for *_, text in lines] for _, _, lines in chart.points]
    assert shown == [["100.0%", "0.0%"], ["50.0%", "75.0%"], ["0.0%", "100.0%"]]
    del curves["rl/reward/proxy/deviation"]
    # One that moves is compared with nothing.
    assert components_chart(curves) is None


def test_a_long_curve_is_thinned_to_means_at_the_last_step() -> None:
    chart = panel("learning_rate", curve([float(x) for x in range(1, 402)]))
    assert len(chart.points) == 134
    assert chart.points[0][1:] == ("step 3", [("c1", ANY, "learning_rate 2")])
    assert chart.points[-1][1:] == ("step 401", [("c1", ANY, "learning_rate 400.5")])


def test_what_is_not_finite_is_left_out(workspace) -> None:
    rows = [(1, "a", 1.0), (2, "a", math.nan), (3, "a", 2.0), (1, "b", math.inf)]
    table = pl.DataFrame(rows, schema=["step", "metric", "value"], orient="row")
    table.write_parquet(workspace.artifacts["train.curve"])
    (training,) = trainings(workspace.stages, workspace.artifacts)
    assert [chart.title for chart in training.main + training.rest] == ["a"]
    assert told(training.main[0]) == ["a 1", "a 2"]


def test_a_line_goes_where_its_values_are() -> None:
    line = Series("a", "c1", [0.0, 1.0], [0, 50])
    chart = escape(line_chart("t", [line], x_title="step", y_range=(0.0, 1.0)))
    bottom, left = HEIGHT - BOTTOM, LEFT
    assert f'd="M{left:.1f} {bottom:.1f}L{WIDTH - RIGHT:.1f} {TOP:.1f}"' in chart
    points = json.loads(re.search(r'data-points="([^"]*)"', chart)[1].replace("&#34;", '"'))
    assert points["bottom"] == bottom
    assert points["rows"] == [
        [left, "step 0", [["c1", bottom, "a 0"]]],
        [WIDTH - RIGHT, "step 50", [["c1", TOP, "a 1"]]],
    ]


def test_a_flat_line_has_room_above_and_below() -> None:
    chart = escape(line_chart("t", [Series("a", "c0", [3.0, 3.0], [1, 2])], x_title="step"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert re.findall(r'class="line c0" d="M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)"', chart) == [
        (f"{middle:.1f}", f"{middle:.1f}")
    ]


def test_bars_are_as_high_as_their_values() -> None:
    groups = [
        Series("a", "c0", [1.0, 0.5], low=[0.9, 0.4], high=[1.0, 0.6]),
        Series("b", "c1", [0.0, 0.25]),
    ]
    chart = escape(bar_chart("t", ["x", "y"], groups, x_title="source", top=1.0))
    plot = HEIGHT - TOP - BOTTOM
    heights = [float(height) for height in re.findall(r' height="([\d.]+)" rx', chart)]
    assert heights == [plot, plot / 2, 0, plot / 4]
    assert 'data-tip="y, a: 0.5 (0.4 to 0.6)"' in chart
    assert chart.count('class="whisker"') == 2


def test_labels_that_would_collide_are_cut() -> None:
    labels = ["a_very_long_generator_name_indeed", "b", "c", "d", "e", "f"]
    chart = escape(bar_chart("t", labels, [Series("n", "c0", [1.0] * 6)], x_title="source"))
    # 320 pixels for six labels: room for eight letters of 6.4 pixels each, two a gap.
    assert ">a_ver\N{HORIZONTAL ELLIPSIS}<" in chart
    assert 'data-tip="a_very_long_generator_name_indeed, n: 1"' in chart


def test_share_labels_name_the_ends() -> None:
    assert share_labels(4) == ["0%", "25%", "50%", "75%", "100%"]
    labels = share_labels(16)
    assert (labels[0], labels[1], labels[4], labels[16]) == ("0%", "", "25%", "100%")


def test_intervals_and_counts_say_their_values() -> None:
    row = Series("rl", "c1", [0.8], low=[0.75], high=[0.85])
    chart = escape(interval_chart("t", [row]))
    assert 'data-tip="rl: 80.0% (75.0% to 85.0%)"' in chart
    assert ">1,200<" in escape(count_chart("t", [("too long", 1200), ("duplicate", 3)]))


def test_calibration_leaves_out_empty_bins() -> None:
    chart = escape(calibration_chart("t", [0.2, 0.8], [0.25, 0.75], [0, 4]))
    assert chart.count("<circle") == 1
    assert "claimed 0.80, happened 0.75, 4 cases" in chart
