"""DS-AURC as in the tables of Li et al.: a uniform grid of thresholds and 100 coverage bins.

1001 thresholds from 0 to 1 are compared with the min-max normalised s_ood and with s_id as it is, which the paper
takes to be a probability. Bins are half-open, so full coverage belongs to none; an empty bin takes the risk of the
next one to the right, or 1; accepting nothing counts as risk 1 at coverage 0; the area runs between bin centres.
The value changes under a monotone transform of either score. It is here to compare with published numbers.
"""

import numpy as np

from calibration.metrics.grid import grid_sums
from calibration.metrics.ordering import Score
from calibration.table import ScoreTable

_THRESHOLDS = np.linspace(0.0, 1.0, 1001)
_EDGES = np.linspace(0.0, 1.0, 101)


def published_double(table: ScoreTable, n_id: float) -> float:
    """The published DS-AURC."""
    live = _live(table)
    s_id, s_ood = live.s_id, _normalised(live.s_ood)
    return _binned_area(grid_sums(s_id, s_ood, (_needed(s_id), _needed(s_ood)), _amounts(live)), n_id)


def published_single(table: ScoreTable, score: Score, n_id: float) -> float:
    """The published AURC of one min-max normalised score on the same mixed data."""
    live = _live(table)
    values = _normalised(getattr(live, score))
    open_door = np.zeros(1)
    return _binned_area(grid_sums(np.zeros_like(values), values, (open_door, _needed(values)), _amounts(live)), n_id)


def _live(table: ScoreTable) -> ScoreTable:
    return table.take(table.finite & (table.weights > 0.0))


def _amounts(table: ScoreTable) -> list[np.ndarray]:
    """Weights of the correct, the ID and all rows."""
    return [np.where(kind, table.weights, 0.0) for kind in (table.correct, table.is_id)] + [table.weights]


def _needed(values: np.ndarray) -> np.ndarray:
    """Of the thresholds, the last before each step down in what is accepted; the others repeat one of them."""
    met = np.searchsorted(_THRESHOLDS, values, side="right")
    return np.asarray(_THRESHOLDS[np.unique(np.append(met[met > 0], len(_THRESHOLDS))) - 1])


def _normalised(values: np.ndarray) -> np.ndarray:
    if not len(values):
        return values
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def _binned_area(sums: list[np.ndarray], n_id: float) -> float:
    right, covered, accepted = sums
    risk = 1.0 - np.divide(right, accepted, out=np.zeros(right.shape), where=accepted > 0.0)
    bins = np.searchsorted(_EDGES, covered.ravel() / n_id, side="right") - 1
    best = np.full(len(_EDGES), np.inf)
    np.minimum.at(best, bins, risk.ravel())
    filled = best[:-1]
    following = 1.0
    for index in range(len(filled) - 1, -1, -1):
        following = filled[index] = filled[index] if np.isfinite(filled[index]) else following
    return float(np.trapezoid(filled, (_EDGES[1:] + _EDGES[:-1]) / 2.0))
