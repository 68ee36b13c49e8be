"""AURC of one score by named estimators, e-AURC and AUGRC.

Rows are ranked by the score; ties share the mean of their ranks' weights, and weights count as repetitions. Rows that
can never be accepted take the share 1 - φ of the coverages with them, where the selective risk is 1.
"""

from typing import Literal, get_args

import numpy as np

from calibration.errors import TableError
from calibration.metrics.curve import RiskCoverage, trapezoid
from calibration.metrics.harmonic import harmonic_difference, mean_harmonic_gain, mean_log_rank
from calibration.metrics.ordering import Profile, Score, dot, profile
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable

Estimator = Literal["curve", "plugin", "plugin_log", "sele"]
ESTIMATORS: tuple[Estimator, ...] = get_args(Estimator)

_BLOCK = 1 << 16
"""Runs that are summed at a time, so that a table of millions stays in the processor's cache."""


def aurc(table: ScoreTable, score: Score, estimator: Estimator = "curve", *, id_only: bool = False) -> float:
    """The area under the risk-coverage curve, coverage being the share of all rows that is accepted.

    `curve` is the trapezoid over distinct scores with the last risk carried to coverage 0; `plugin`, `plugin_log` and
    `sele` are the finite-sample estimators of Zhou et al. 2025 (Eq. 13, 18 and 33).
    """
    return estimates(outcomes(table, score, id_only=id_only))[_checked(estimator)]


def eaurc(table: ScoreTable, score: Score, estimator: Estimator = "curve", *, id_only: bool = False) -> float:
    """AURC in excess of a perfect ranking with the same error rate (Geifman et al. 2019)."""
    sweep = outcomes(table, score, id_only=id_only)
    return estimates(sweep)[_checked(estimator)] - perfect_aurc(sweep.total_bad / sweep.total)


def augrc(table: ScoreTable, score: Score, *, id_only: bool = False) -> float:
    """The area under the generalised risk, accepted and wrong over all rows (Traub et al. 2024)."""
    return area_of_generalised_risk(outcomes(table, score, id_only=id_only))


def outcomes(table: ScoreTable, score: Score, *, id_only: bool = False) -> Profile:
    """Correct against wrong or OOD rows by threshold; what the estimators below are computed from."""
    sweep = profile(table, score, table.correct, table.is_id if id_only else None)
    if sweep.total <= 0.0:
        raise Undefined("the table has no ID rows with weight" if id_only else "the table has no rows with weight")
    return sweep


def estimates(sweep: Profile) -> dict[Estimator, float]:
    """Every estimator of AURC at once."""
    if not len(sweep.accepted):
        return {"curve": 1.0, "plugin": 1.0, "plugin_log": 1.0, "sele": 0.5}
    n = float(sweep.accepted[-1])
    sums = sum((_weighted_losses(sweep, n, start) for start in range(0, len(sweep.good), _BLOCK)), np.zeros(3))
    plugin, plugin_log, sele = (sums / n).tolist()
    reached = n / sweep.total
    return {
        "curve": area_of_selective_risk(sweep),
        "plugin": reached * plugin + (1.0 - reached),
        "plugin_log": reached * plugin_log + (1.0 - reached),
        "sele": reached**2 * sele + (1.0 - reached**2) / 2.0,
    }


def _weighted_losses(sweep: Profile, n: float, start: int) -> np.ndarray:
    """Sums of losses under the three kinds of rank weights, over one block of runs."""
    before = (sweep.good[start - 1], sweep.bad[start - 1]) if start else (0.0, 0.0)
    good, bad = sweep.good[start : start + _BLOCK], sweep.bad[start : start + _BLOCK]
    wrong = np.diff(bad, prepend=before[1])
    accepted = good + bad
    above = np.concatenate(([before[0] + before[1]], accepted[:-1]))
    run = accepted - above
    plugin = harmonic_difference(accepted, n - accepted) + mean_harmonic_gain(above, run)
    plugin_log = np.log(n + 1.0) - mean_log_rank(above, run)
    rank = n - accepted + (run + 1.0) / 2.0
    return np.array([dot(plugin, wrong), dot(plugin_log, wrong), dot(rank, wrong) / n])


def perfect_aurc(error_rate: float) -> float:
    """AURC of a ranking that puts every error last: e + (1 - e) ln(1 - e)."""
    return error_rate + (1.0 - error_rate) * float(np.log1p(-error_rate)) if error_rate < 1.0 else 1.0


def area_of_selective_risk(sweep: Profile) -> float:
    """AURC from a sweep: straight lines between distinct scores, the last risk carried to coverage 0."""
    return trapezoid(RiskCoverage(sweep.accepted / sweep.total, sweep.bad / sweep.accepted))


def area_of_generalised_risk(sweep: Profile) -> float:
    """AUGRC from a sweep: straight lines between distinct scores, from no risk at coverage 0."""
    if not len(sweep.accepted):
        return 0.5
    coverage = np.concatenate(([0.0], sweep.accepted)) / sweep.total
    wrong = np.concatenate(([0.0], sweep.bad)) / sweep.total
    reached = float(coverage[-1])
    return float(np.sum(np.diff(coverage) * (wrong[1:] + wrong[:-1])) / 2.0) + (1.0 - reached**2) / 2.0


def _checked(estimator: Estimator) -> Estimator:
    if estimator not in ESTIMATORS:
        raise TableError(f"There is no estimator {estimator!r}; choose {', '.join(ESTIMATORS)}.")
    return estimator
