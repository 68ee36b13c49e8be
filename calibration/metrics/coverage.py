"""The weights behind a risk-coverage search, and the coverages it tells apart."""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.thresholds import Steps
from calibration.table import ScoreTable

Found = tuple[np.ndarray, np.ndarray, bool]
"""Accepted ID amounts by rising coverage, the smallest risk at each, and whether nothing was rounded or skipped."""

_ROUNDED_CELLS = 1_000_000
"""Coverages that are told apart where ID weights have no common unit."""


@dataclass(frozen=True)
class Amounts:
    """Weights of the rows of `Steps` in a unit that makes those of ID rows whole numbers, where there is one."""

    unit: float
    of_id: np.ndarray
    of_wrong: np.ndarray
    of_ood: np.ndarray
    whole: bool

    @property
    def n_cells(self) -> int:
        """How many coverages are told apart."""
        return round(self.of_id.sum()) if self.whole else _ROUNDED_CELLS

    @property
    def scale(self) -> float:
        """Coverage cells a unit of accepted ID amount."""
        return 1.0 if self.whole else _ROUNDED_CELLS / float(self.of_id.sum())


def amounts_of(table: ScoreTable, pairs: Steps) -> Amounts:
    """Weights by kind; ID weights with a common unit become counts."""
    weight, is_id, correct = table.weights[pairs.rows], table.is_id[pairs.rows], table.correct[pairs.rows]
    unit, whole = common_unit(weight[is_id])
    in_units = weight / unit
    of_id = np.where(is_id, np.rint(in_units) if whole else in_units, 0.0)
    return Amounts(unit, of_id, np.where(correct, 0.0, of_id), np.where(is_id, 0.0, in_units), whole)


def common_unit(weight: np.ndarray) -> tuple[float, bool]:
    """A weight of which all others are multiples and whether one was found: the smallest, or a simple part of it."""
    smallest = float(weight.min())
    ratio = weight / smallest
    for part in range(1, 13):
        counts = np.rint(ratio * part)
        if (np.abs(ratio * part - counts) <= 1e-9 * counts).all():
            if counts.sum() <= 1e6 + 64 * len(counts):  # one cell a unit: memory stays O(n)
                return smallest / part, True
            break
    return smallest, False


def attained(best: np.ndarray, amounts: Amounts, *, exact: bool) -> Found:
    """What a search found, with the smallest risk of each coverage cell in `best`."""
    cell = np.flatnonzero(np.isfinite(best))
    return cell / amounts.scale, best[cell], exact
