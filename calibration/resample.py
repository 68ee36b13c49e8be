"""Bootstrap intervals of what fixed thresholds do: stratified, seeded, paired over policies.

With the thresholds fixed, a row is nothing but its outcome, so a bootstrap draw is a multinomial draw of outcome
counts in each stratum: 1,000 replicates of a million rows cost as much as those of a hundred.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.splits import has_weights, strata
from calibration.table import ScoreTable

REPLICATES = 1000
LEVEL = 0.95
_BOOTSTRAP = 3  # the stream of the user's seed; splits.py has the others
_BLOCK = 4_000_000  # numbers drawn at once, to bound memory where every row has its own weight


@dataclass(frozen=True)
class Rates:
    """Rates of one policy, as arrays over replicates; NaN where undefined."""

    f1: NDArray[np.float64]
    precision: NDArray[np.float64]
    selective_risk: NDArray[np.float64]
    recall: NDArray[np.float64]
    id_coverage: NDArray[np.float64]
    acceptance: NDArray[np.float64]

    @classmethod
    def of(cls, totals: NDArray[np.float64]) -> "Rates":
        """From rows of (all, ID, accepted, accepted ID, accepted and correct)."""
        everything, n_id, accepted, accepted_id, right = totals
        with np.errstate(invalid="ignore", divide="ignore"):
            precision = right / accepted
            return cls(
                f1=2.0 * right / (accepted + n_id),
                precision=precision,
                selective_risk=1.0 - precision,
                recall=right / n_id,
                id_coverage=accepted_id / n_id,
                acceptance=accepted / everything,
            )


def accepted_by(table: ScoreTable, tau_id: float, tau_ood: float) -> NDArray[np.bool_]:
    """The rows that pass both doors (Li et al., Eq. 1); a row without two finite scores never does."""
    return table.finite & (table.s_ood >= tau_ood) & (table.s_id >= tau_id)


def rates(table: ScoreTable, accept: NDArray[np.bool_]) -> Rates:
    """The rates on the table itself, one value each."""
    return Rates.of(_totals(table, accept)[:, None])


def bootstrap(
    table: ScoreTable, accepts: Sequence[NDArray[np.bool_]], *, seed: int, replicates: int = REPLICATES
) -> list[Rates]:
    """Replicated rates of several policies on the same draws, so that their differences are paired."""
    cell, weight, stratum, size = _cells(table, accepts)
    rng = np.random.default_rng((seed, _BOOTSTRAP))
    masks = _masks(table, accepts, cell)
    totals = np.zeros((len(masks), replicates))
    block = max(1, _BLOCK // max(len(size), 1))
    for start in range(0, replicates, block):
        stop = min(start + block, replicates)
        drawn = np.empty((stop - start, len(size)))
        for members in (np.flatnonzero(stratum == each) for each in np.unique(stratum)):
            n = int(size[members].sum())
            drawn[:, members] = rng.multinomial(n, size[members] / n, size=stop - start)
        totals[:, start:stop] = (drawn @ (masks * weight).T).T
    return [Rates.of(totals[[0, 1, *range(2 + 3 * k, 5 + 3 * k)]]) for k in range(len(accepts))]


def interval(replicated: NDArray[np.float64], level: float = LEVEL) -> tuple[float, float] | None:
    """The percentile interval; None where the rate is undefined in most replicates."""
    defined = replicated[np.isfinite(replicated)]
    if 2 * len(defined) < len(replicated):
        return None
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(defined, [tail, 1.0 - tail])
    return float(low), float(high)


def f1_interval(table: ScoreTable, accept: NDArray[np.bool_], *, seed: int) -> tuple[float, float]:
    """Bootstrap interval of the F1 of fixed decisions."""
    return interval(bootstrap(table, [accept], seed=seed)[0].f1) or (0.0, 1.0)


def _totals(table: ScoreTable, accept: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Weighted counts: all, ID, accepted, accepted ID, accepted and correct."""
    parts = (np.ones(len(table), dtype=bool), table.is_id, accept, accept & table.is_id, accept & table.correct)
    return np.array([float(table.weights[part].sum()) for part in parts])


def _cells(
    table: ScoreTable, accepts: Sequence[NDArray[np.bool_]]
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Rows with equal fate share a cell: a representative row, its weight, its stratum and the number of rows."""
    stratum = strata(table)
    code = 2 * stratum + table.correct
    for accept in accepts:
        code = 2 * code + accept
    if has_weights(table):
        distinct, weight_code = np.unique(table.weights, return_inverse=True)
        code = code * len(distinct) + weight_code
    _, first, size = np.unique(code, return_index=True, return_counts=True)
    return first, table.weights[first], stratum[first], size


def _masks(table: ScoreTable, accepts: Sequence[NDArray[np.bool_]], cell: NDArray[np.intp]) -> NDArray[np.float64]:
    """For every total that `Rates.of` wants, which cells count towards it."""
    is_id, correct = table.is_id[cell], table.correct[cell]
    rows = [np.ones(len(cell)), is_id]
    for accept in accepts:
        taken = accept[cell]
        rows += [taken, taken & is_id, taken & correct]
    return np.array(rows, dtype=np.float64)
