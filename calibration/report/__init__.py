"""The offline report: one document, written as JSON and as one self-contained HTML page."""

from pathlib import Path

from calibration.report.analysis import Analysis, Request, analyse
from calibration.report.document import ReportDocument
from calibration.report.measures import affordable_resamples
from calibration.report.tables import NamedTable, read_tables
from calibration.store import write_atomic


def write_report(analysis: Analysis, page: str | Path | None = None, document: str | Path | None = None) -> None:
    """Write the page, the JSON document, or both, each whole or not at all."""
    if page is not None:
        from calibration.report.page import render

        write_atomic(Path(page), render(analysis).encode())
    if document is not None:
        write_atomic(Path(document), analysis.document.model_dump_json(indent=2).encode() + b"\n")


__all__ = [
    "Analysis",
    "NamedTable",
    "ReportDocument",
    "Request",
    "affordable_resamples",
    "analyse",
    "read_tables",
    "write_report",
]
