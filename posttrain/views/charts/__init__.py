"""Charts of pages: Vega-Lite, drawn in the reader's browser without a network."""

from posttrain.views.charts.chart import NUMBER, SHARE, Chart, Series, Unit
from posttrain.views.charts.kinds import calibration_chart, histogram, line_chart
from posttrain.views.charts.page import chart_scripts, chart_style
from posttrain.views.charts.rows import ChartRow, row_chart

__all__ = [
    "NUMBER",
    "SHARE",
    "Chart",
    "ChartRow",
    "Series",
    "Unit",
    "calibration_chart",
    "chart_scripts",
    "chart_style",
    "histogram",
    "line_chart",
    "row_chart",
]
