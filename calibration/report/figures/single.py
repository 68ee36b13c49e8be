"""The figures of a single table, as far as its columns allow them."""

from collections.abc import Iterator

from calibration.report.analysis import Analysis
from calibration.report.figures.base import Figure
from calibration.report.figures.distributions import histogram, reliability_diagram
from calibration.report.figures.outcomes import classes, stopped
from calibration.report.figures.plane import plane
from calibration.report.figures.prevalence import prevalence
from calibration.report.figures.risk import risk_against_coverage
from calibration.report.figures.surface import surface


def figures(analysis: Analysis) -> Iterator[Figure]:
    """By key: stopped, plane, surface, risk, histogram-id, histogram-ood, reliability, classes, prevalence."""
    table, document = analysis.judged.table, analysis.document
    yield stopped(document)
    if table.finite.any():
        yield plane(analysis)
        yield surface(analysis)
        yield risk_against_coverage(analysis)
        yield histogram(analysis, "s_id")
        yield histogram(analysis, "s_ood")
    if table.probabilities is not None:
        yield reliability_diagram(table)
    if document.per_class:
        yield classes(document)
    if document.prevalence is not None and document.prevalence.curve:
        yield prevalence(document.prevalence, document.verdict[-1])
