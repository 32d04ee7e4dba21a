"""Learning curves: what a panel shows of many steps, and what is left out."""

import math

import polars as pl

from posttrain.views.report.components import components_chart
from posttrain.views.report.training import panel, trainings


def curve(values, first=1):
    return pl.DataFrame({"step": range(first, first + len(values)), "value": values})


def rows(chart):
    return chart.spec["data"]["values"]


def shown(chart):
    """The solid line."""
    return [row["y0"] for row in rows(chart)]


def test_a_curve_is_shown_by_its_running_mean():
    """Of fifteen values the mean is of three, at the ends of two."""
    values = [0.0, 3.0, 6.0, 9.0, 12.0] + [0.0] * 10
    assert shown(panel("loss", curve(values)))[:6] == [1.5, 3, 6, 9, 7, 4]
    assert [row["f0"] for row in rows(panel("loss", curve(values)))] == values
    assert shown(panel("learning_rate", curve(values)))[:2] == [0, 3]
    assert shown(panel("loss", curve([5.0, 1.0]))) == [5, 1]


def test_the_components_of_a_reward_stand_in_one_picture_each_on_its_own_range():
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
    named = chart.spec["encoding"]["color"]["scale"]["domain"]
    assert named == ["gold (0.3 to 0.5)", "proxy (-3 to 1)"]
    assert rows(chart) == [
        {"x": 1, "y0": 1.0, "y1": 0.0},
        {"x": 2, "y0": 0.5, "y1": 0.75},
        {"x": 3, "y0": 0.0, "y1": 1.0},
    ]
    del curves["rl/reward/proxy/deviation"]
    # One that moves is compared with nothing.
    assert components_chart(curves) is None


def test_a_long_curve_is_thinned_to_means_at_the_last_step():
    chart = panel("learning_rate", curve([float(x) for x in range(1, 402)]))
    assert len(rows(chart)) == 134
    assert rows(chart)[0] == {"x": 3, "y0": 2.0}
    assert rows(chart)[-1] == {"x": 401, "y0": 400.5}


def test_what_is_not_finite_is_left_out(workspace):
    table = pl.DataFrame(
        [(1, "a", 1.0), (2, "a", math.nan), (3, "a", 2.0), (1, "b", math.inf)],
        schema=["step", "metric", "value"],
        orient="row",
    )
    table.write_parquet(workspace.artifacts["train.curve"])
    (training,) = trainings(workspace.stages, workspace.artifacts)
    assert [chart.title for chart in training.main + training.rest] == ["a"]
    assert rows(training.main[0]) == [{"x": 1, "y0": 1.0}, {"x": 3, "y0": 2.0}]
