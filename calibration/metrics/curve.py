"""Risk-coverage curves of one score or of the double gate, and what is read off them."""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.ordering import Score, profile
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable


@dataclass(frozen=True)
class RiskCoverage:
    """Points of a risk-coverage curve by rising coverage; a coverage that no threshold reaches has no point."""

    coverage: np.ndarray
    risk: np.ndarray
    threshold: np.ndarray | None = None
    """The threshold of each point, where a single score makes the curve."""
    exact: bool = True
    """False where thresholds were thinned to a grid, or coverages rounded, to bound the work."""

    @property
    def generalised_risk(self) -> np.ndarray:
        """Accepted and wrong, over all rows."""
        return np.asarray(self.coverage * self.risk)

    def risk_at(self, coverage: float) -> float:
        """The risk at the smallest attainable coverage that is at least the one asked for."""
        at = int(np.searchsorted(self.coverage, coverage * (1.0 - 1e-12)))
        if at == len(self.coverage):
            raise Undefined(f"no threshold reaches a coverage of {coverage:g}")
        return float(self.risk[at])

    def coverage_at(self, risk: float) -> float:
        """The largest coverage whose risk is not above the one asked for, and 0 where there is none."""
        held = np.flatnonzero(self.risk <= risk)
        return float(self.coverage[held[-1]]) if len(held) else 0.0


def risk_coverage(table: ScoreTable, score: Score, *, id_only: bool = False) -> RiskCoverage:
    """Selective risk against the share of all rows accepted (Jaeger et al. 2023, Eq. 29 and 30).

    An error is a misclassified or an OOD row; `id_only` judges the score on ID rows alone.
    """
    sweep = profile(table, score, table.correct, table.is_id if id_only else None)
    if sweep.total <= 0.0:
        raise Undefined("the table has no ID rows with weight" if id_only else "the table has no rows with weight")
    return RiskCoverage(sweep.accepted / sweep.total, sweep.bad / sweep.accepted, sweep.threshold)


def trapezoid(curve: RiskCoverage) -> float:
    """Area with straight lines between attainable coverages and the first risk carried to coverage 0.

    A coverage beyond the last attainable one, which only non-finite scores cause, has risk 1.
    """
    if not len(curve.coverage):
        return 1.0
    left = curve.coverage[0] * curve.risk[0]
    inner = np.sum(np.diff(curve.coverage) * (curve.risk[1:] + curve.risk[:-1])) / 2.0
    return float(left + inner + _missing(curve))


def envelope(curve: RiskCoverage) -> float:
    """Area under the best risk at the same or a larger coverage; 1 where no such coverage is attainable."""
    if not len(curve.coverage):
        return 1.0
    best = np.minimum.accumulate(curve.risk[::-1])[::-1]
    return float(np.sum(np.diff(curve.coverage, prepend=0.0) * best) + _missing(curve))


def _missing(curve: RiskCoverage) -> float:
    return max(0.0, 1.0 - float(curve.coverage[-1]))
