"""Charts of the pages, drawn by the one module of charts that there is."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from posttrain.cli.page.distributions import ColumnSpread
from posttrain.cli.page.metric_history import MeasuredFigure
from posttrain.cli.page.templates import moment
from posttrain.stage.formatting import number
from posttrain.views.charts import NUMBER, Chart, ChartRow, Series, histogram, line_chart, row_chart

_MOST_LABELS = 5
_MOST_RUNS = 40
_MOST_CURVES = 60


def chart_of_spread(spread: ColumnSpread) -> Chart:
    """Draw the values of a column.

    Args:
        spread: Counts by value or by bin.

    Returns:
        A histogram.

    """
    return histogram(
        spread.column.replace("_", " "),
        spread.labels,
        [Series(spread.column, 1, [float(count) for count in spread.counts])],
        x_title=spread.what,
        y_title="rows",
        every=max(1, len(spread.labels) // _MOST_LABELS),
        note=spread.summary,
    )


def chart_of_metric(name: str, figures: Sequence[MeasuredFigure]) -> Chart | None:
    """Draw a metric over runs.

    Args:
        name: Of the metric.
        figures: Oldest first.

    Returns:
        A row a run, the newest above, with its interval; None where no run measured it anew.

    """
    anew = [each for each in figures if not each.repeated][-_MOST_RUNS:][::-1]
    rows = [
        ChartRow(
            # Runs of one minute are told apart by their ids.
            " · ".join([moment(each.started), each.recipe, each.run_id, *each.releases]),
            name,
            1,
            each.value,
            _said(each),
            each.low,
            each.high,
        )
        for each in anew
    ]
    return row_chart(name, rows, unit=NUMBER) if rows else None


def chart_of_problem(by_step: Sequence[Mapping[str, Any]]) -> Chart | None:
    """Draw what a problem paid over the steps of a training.

    Args:
        by_step: With `step` and the mean `reward`, in order.

    Returns:
        A curve; None of a single step.

    """
    judged = [each for each in by_step if each["reward"] is not None]
    if len(judged) < 2:
        return None
    xs, values = [each["step"] for each in judged], [each["reward"] for each in judged]
    line = Series("mean reward", 1, values, xs=xs, dots=True)
    return line_chart("Mean reward by step", [line], x_title="step")


def charts_of_curve(curve: pl.DataFrame) -> list[Chart]:
    """Draw the metrics of a training.

    Args:
        curve: Rows of CURVE: `step`, `metric`, `value`.

    Returns:
        A curve for each metric that has two finite values or more, in the order of the table.

    """
    charts: list[Chart] = []
    for (name,), rows in curve.group_by("metric", maintain_order=True):
        rows = rows.filter(pl.col("value").is_finite()).sort("step")
        if rows.height >= 2 and len(charts) < _MOST_CURVES:
            steps, values = rows["step"].to_list(), rows["value"].to_list()
            line = Series(str(name), 1, values, xs=steps)
            charts.append(line_chart(str(name), [line], x_title="step"))
    return charts


def _said(figure: MeasuredFigure) -> str:
    if figure.low is None or figure.high is None:
        return number(figure.value)
    return f"{number(figure.value)} [{number(figure.low)}, {number(figure.high)}]"
