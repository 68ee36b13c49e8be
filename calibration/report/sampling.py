"""Fewer rows that stand for a table: for the points on the page and for the resamples of large tables."""

import numpy as np
from numpy.typing import NDArray

from calibration.splits import strata
from calibration.table import ScoreTable

SCARCE = 50
"""Rows of a stratum that are kept in any case, so that rare kinds are seen."""


def stratified(stratum: NDArray[np.int64], most: int, seed: int = 0, at_least: int = 1) -> NDArray[np.intp]:
    """About `most` positions in rising order, every stratum in its share but with `at_least` of its rows."""
    if len(stratum) <= most:
        return np.arange(len(stratum))
    rng = np.random.default_rng(seed)
    chosen = []
    for value in np.unique(stratum):
        rows = np.flatnonzero(stratum == value)
        share = max(round(most * len(rows) / len(stratum)), at_least)
        chosen.append(rows if share >= len(rows) else rng.choice(rows, share, replace=False))
    return np.sort(np.concatenate(chosen))


def sample_of_kinds(table: ScoreTable, most: int) -> NDArray[np.intp]:
    """Rows to look at: correct, misclassified and OOD rows in their shares, rare ones never left out."""
    kind = np.where(table.correct, 0, np.where(table.is_id, 1, 2))
    return stratified(kind, most, at_least=SCARCE)


def sample_of_groups(table: ScoreTable, most: int, seed: int = 0) -> NDArray[np.intp]:
    """Rows to resample: ID and every OOD group in their shares, whatever their outcomes."""
    return stratified(strata(table), most, seed)
