"""DS-AURC: the area under the smallest risk at each coverage of the double gate (Li et al., Eq. 8).

Coverage is the accepted share of the ID rows, risk the share of errors and OOD among all accepted rows.
"""

from typing import Literal, get_args

import numpy as np

from calibration.errors import TableError
from calibration.metrics.compiled import compiling_pays
from calibration.metrics.coverage import amounts_of
from calibration.metrics.coverage_compiled import search_all, search_grid
from calibration.metrics.coverage_plain import plain_search
from calibration.metrics.curve import RiskCoverage, envelope, trapezoid
from calibration.metrics.double_f1 import id_weight
from calibration.metrics.ordering import Score, increments, running
from calibration.metrics.published import published_double, published_single
from calibration.metrics.thresholds import steps
from calibration.table import ScoreTable

Convention = Literal["trapezoid", "envelope", "published"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

EXACT_WORK = 1e11
"""Rows times values of tau_ood up to which every pair is tried (n = 440,000 half OOD: half a minute on two cores)."""
GRID = 2048
"""Values of tau_ood, at quantiles of the ID rows, that are tried beyond that; tau_id stays exact."""


def ds_aurc(table: ScoreTable, convention: Convention = "trapezoid") -> float:
    """DS-AURC under a named reading of coverages that no pair of thresholds attains.

    `trapezoid` joins the attainable coverages and is flat to the left end, `envelope` takes the best risk at the same
    or a larger coverage, `published` repeats the grid and the bins behind the paper's tables.
    """
    if _checked(convention) == "published":
        return published_double(table, id_weight(table))
    return _area(double_risk_coverage(table), convention)


def one_gate_aurc(table: ScoreTable, score: Score, convention: Convention = "trapezoid") -> float:
    """AURC of one score in the terms of `ds_aurc`: the special case of the other gate left open.

    Under `envelope` it is never below DS-AURC.
    """
    if _checked(convention) == "published":
        return published_single(table, score, id_weight(table))
    return _area(one_gate_risk_coverage(table, score), convention)


def one_gate_risk_coverage(table: ScoreTable, score: Score) -> RiskCoverage:
    """Risk against the covered share of the ID rows with the other gate left open."""
    n_id = id_weight(table)
    kinds = (table.is_id, table.is_id & ~table.correct, ~table.is_id)
    threshold, (covered, wrong, ood) = running(table, score, kinds)
    first = increments(covered) > 0.0  # at equal coverage the strictest threshold accepts least OOD
    risk = (wrong[first] + ood[first]) / (covered[first] + ood[first])
    return RiskCoverage(np.minimum(covered[first] / n_id, 1.0), risk, threshold[first])


def double_risk_coverage(table: ScoreTable, *, grid: int | None = None) -> RiskCoverage:
    """The smallest risk at every attainable coverage; `grid` limits the search to that many values of tau_ood."""
    if grid is not None and grid < 1:
        raise TableError(f"A grid takes at least 1 value of tau_ood, not {grid!r}.")
    n_id = id_weight(table)
    pairs = steps(table, table.is_id)
    if not len(pairs.ends):
        return RiskCoverage(np.empty(0), np.empty(0))
    work = float(len(pairs.rows)) * len(pairs.ends)
    asked = grid or (GRID if work > EXACT_WORK else len(pairs.ends))
    amounts = amounts_of(table, pairs)
    if asked < len(pairs.ends):
        covered, risk, exact = search_grid(pairs, amounts, asked)
    else:
        covered, risk, exact = (search_all if compiling_pays(work) else plain_search)(pairs, amounts)
    return RiskCoverage(np.minimum(covered * (amounts.unit / n_id), 1.0), risk, exact=exact)


def _area(curve: RiskCoverage, convention: Convention) -> float:
    return trapezoid(curve) if convention == "trapezoid" else envelope(curve)


def _checked(convention: Convention) -> Convention:
    if convention not in CONVENTIONS:
        raise TableError(f"There is no convention {convention!r}; choose {', '.join(CONVENTIONS)}.")
    return convention
