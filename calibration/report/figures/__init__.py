"""Every figure of the page, in its order."""

from calibration.report.figures.base import Figure
from calibration.report.figures.compare import comparison_figures
from calibration.report.figures.single import figures

__all__ = ["Figure", "comparison_figures", "figures"]
