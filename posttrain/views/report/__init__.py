"""What a run leaves for people to look at: a page, and a table on the terminal."""

from posttrain.views.report.facts import StageFacts
from posttrain.views.report.page import ReportExtras, write_report
from posttrain.views.report.table import summary_table

__all__ = ["StageFacts", "ReportExtras", "summary_table", "write_report"]
