"""Reports on programs: `program` runs one, `recorder` collects what it does, `findings` say what to change and where.

A report is shown as text (`screen`) or kept as one HTML page (`page`).
"""

from practice_gpus.reports import page, statements
from practice_gpus.reports.findings import CHOOSES, source
from practice_gpus.reports.program import Report, in_child, report

__all__ = [
    "CHOOSES",
    "Report",
    "in_child",
    "page",
    "report",
    "source",
    "statements",
]
