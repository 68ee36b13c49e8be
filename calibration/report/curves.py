"""Risk against coverage of the double gate and of each single score, in the same terms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from calibration.metrics import RiskCoverage, Undefined, double_risk_coverage, one_gate_risk_coverage
from calibration.metrics.sections import COVERAGES, RISKS
from calibration.report.document import OperatingPoint
from calibration.report.measures import RESAMPLED_ROWS
from calibration.table import ScoreTable

GRID = 1024
"""Values of tau_ood behind the drawn curve of a large table; more would not be seen."""


@dataclass(frozen=True)
class Curves:
    """Coverage is the accepted share of ID for all three, so that they can be compared."""

    double: RiskCoverage
    s_id: RiskCoverage
    s_ood: RiskCoverage

    @classmethod
    def of(cls, table: ScoreTable) -> "Curves":
        """The curves of a table with ID rows."""
        grid = GRID if len(table) > RESAMPLED_ROWS else None
        return cls(
            double_risk_coverage(table, grid=grid),
            one_gate_risk_coverage(table, "s_id"),
            one_gate_risk_coverage(table, "s_ood"),
        )


def operating_points(curves: Curves, metrics: Mapping[str, Any]) -> list[OperatingPoint]:
    """Coverage at given risks and risk at given coverages; the double gate's are those of the metrics."""
    double = metrics["operating"]["double"]
    points = []
    for risk in RISKS:
        points.append(
            OperatingPoint(
                what="coverage_at_risk",
                at=risk / 100,
                double=double[f"coverage_at_risk_{risk}"],
                s_id=curves.s_id.coverage_at(risk / 100),
                s_ood=curves.s_ood.coverage_at(risk / 100),
            )
        )
    for coverage in COVERAGES:
        points.append(
            OperatingPoint(
                what="risk_at_coverage",
                at=coverage / 100,
                double=double[f"risk_at_coverage_{coverage}"],
                s_id=_defined(curves.s_id.risk_at, coverage / 100),
                s_ood=_defined(curves.s_ood.risk_at, coverage / 100),
            )
        )
    return points


def _defined(read: Callable[[float], float], at: float) -> float | None:
    try:
        return read(at)
    except Undefined:
        return None
