"""The report of a debug folder: one HTML file that needs no network and no library."""

from jitney_tools.report.notebook import Report, newest
from jitney_tools.report.page import write_report

__all__ = ["Report", "newest", "write_report"]
