"""The prevalence budget: how much OOD traffic a policy can stand, with exact bounds, stamped on every policy.

With c the acceptance of ID, r the error among accepted ID, a the acceptance of OOD and π the OOD prevalence,

    R(π) = [(1−π)·c·r + π·a] / [(1−π)·c + π·a].

R rises with r and a and falls with c, so Clopper-Pearson bounds at delta/3 each (c from below, r and a from above)
bound R(π) for every π at once, and the largest π with a bound ≤ r* is the budget π*.
"""

import math

import numpy as np
from numpy.typing import NDArray

from calibration.binomial import lower_bound, upper_bound
from calibration.evidence import Bounds, BudgetPoint, PrevalenceBudget
from calibration.table import ScoreTable

# Deployments differ most at the low end, so the curve is denser there.
CURVE = (
    0.0,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.03,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
)


def mixed_risk(prevalence: float, c: float, r: float, a: float) -> float:
    """R(π); one where nothing at all is accepted, since an empty promise is no promise."""
    accepted = (1.0 - prevalence) * c + prevalence * a
    return ((1.0 - prevalence) * c * r + prevalence * a) / accepted if accepted > 0 else 1.0


def largest_prevalence(risk: float, c: float, r: float, a: float) -> float | None:
    """The π at which R(π) reaches `risk`: odds c·(risk − r) / (a·(1 − risk)); None when R(0) is already above."""
    if c <= 0 or r > risk:
        return None
    if a <= 0:
        return 1.0
    odds = c * (risk - r) / (a * (1.0 - risk))
    return odds / (1.0 + odds)


def rate_bounds(events: int, trials: int, delta: float) -> Bounds:
    """A rate with one-sided exact bounds at delta on either side."""
    value = events / trials if trials else 0.0
    low, high = float(lower_bound(events, trials, delta)), float(upper_bound(events, trials, delta))
    return Bounds(value=value, low=low if trials else 0.0, high=high)


def prevalence_budget(table: ScoreTable, accept: NDArray[np.bool_], risk: float, delta: float) -> PrevalenceBudget:
    """The budget of fixed decisions on held-out, unweighted rows."""
    right = int(np.count_nonzero(accept & table.correct))
    of_id = int(np.count_nonzero(accept & table.is_id))
    c = rate_bounds(of_id, table.n_id, delta / 3)
    r = rate_bounds(of_id - right, of_id, delta / 3)
    if table.n_ood == 0:
        return PrevalenceBudget(
            risk=risk,
            delta=delta,
            pi_star=None,
            id_only=True,
            id_acceptance=c,
            id_error=r,
            ood_acceptance=None,
            statement="id_only: no OOD data, nothing is promised about OOD inputs",
        )
    a = rate_bounds(int(np.count_nonzero(accept & ~table.is_id)), table.n_ood, delta / 3)
    pi_star = largest_prevalence(risk, c.low, r.high, a.high)
    return PrevalenceBudget(
        risk=risk,
        delta=delta,
        pi_star=pi_star,
        id_only=False,
        id_acceptance=c,
        id_error=r,
        ood_acceptance=a,
        curve=tuple(_point(pi, c, r, a) for pi in CURVE),
        statement=_statement(pi_star, risk, delta),
    )


def _point(prevalence: float, c: Bounds, r: Bounds, a: Bounds) -> BudgetPoint:
    return BudgetPoint(
        prevalence=prevalence,
        risk=mixed_risk(prevalence, c.value, r.value, a.value),
        upper=mixed_risk(prevalence, c.low, r.high, a.high),
    )


def _statement(pi_star: float | None, risk: float, delta: float) -> str:
    promise = f"risk ≤ {100 * risk:.3g} % is certified with probability ≥ {100 * (1 - delta):.3g} %"
    if pi_star is None:
        return f"none: {promise.replace(' is ', ' is not ')}, not even without OOD"
    return f"{promise} while at most {_floored(100 * pi_star)} % of the traffic is OOD of the calibration's kind"


def _floored(value: float, digits: int = 3) -> str:
    """A few significant digits, rounded down: a budget must not grow by being printed."""
    if value <= 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{math.floor(value / unit) * unit:.{digits}g}"
