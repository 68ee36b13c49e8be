"""How many rows each pair of thresholds accepts, for all pairs of a grid at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.table import ScoreTable

AXIS_LIMIT = 1000  # candidate thresholds a door; above it a quantile grid stands in for every distinct value


@dataclass(frozen=True)
class Grid:
    """Candidate thresholds of both doors, strictest first; `exact` when they are all the distinct values there are."""

    tau_id: NDArray[np.float64]
    tau_ood: NDArray[np.float64]
    exact: bool

    @classmethod
    def of(cls, table: ScoreTable, rows: NDArray[np.bool_], limit: int = AXIS_LIMIT) -> "Grid":
        """Candidates at the scores of the given rows: a threshold between two of them only lets more others in."""
        use = rows & table.finite
        tau_id, exact_id = _candidates(table.s_id[use], limit)
        tau_ood, exact_ood = _candidates(table.s_ood[use], limit)
        return cls(tau_id, tau_ood, exact_id and exact_ood)

    def counts(self, table: ScoreTable, rows: NDArray[np.bool_] | None = None, *, weighted: bool = False) -> NDArray:
        """[i, j] = how many (or how much weight) of the rows pass tau_id[i] and tau_ood[j]."""
        use = table.finite if rows is None else rows & table.finite
        width = len(self.tau_ood) + 1
        # A row falls into the cell of the strictest thresholds it passes (the last one: none); running sums then
        # count everyone who passes each pair.
        cell = _strictest(self.tau_id, table.s_id[use]) * width + _strictest(self.tau_ood, table.s_ood[use])
        weights = table.weights[use] if weighted else None
        cells = np.bincount(cell, weights=weights, minlength=(len(self.tau_id) + 1) * width).reshape(-1, width)
        passed = np.cumsum(cells[:-1, :-1], axis=1)
        return np.cumsum(passed, axis=0, out=passed)

    def coarse(self, size: int) -> NDArray[np.int64]:
        """Flat positions of an evenly spaced sub-grid with at most `size` thresholds a door."""
        rows, columns = (_spread(len(axis), size) for axis in (self.tau_id, self.tau_ood))
        return (rows[:, None] * len(self.tau_ood) + columns).ravel()

    def pair(self, cell: int) -> tuple[float, float]:
        """The thresholds at a flat position of the counts."""
        i, j = divmod(int(cell), len(self.tau_ood))
        return float(self.tau_id[i]), float(self.tau_ood[j])

    def notes(self) -> tuple[str, ...]:
        """What to say when not every threshold was tried."""
        size = f"{len(self.tau_id):,} × {len(self.tau_ood):,}"
        return () if self.exact else (f"thresholds were chosen from a quantile grid of {size} pairs",)

    def describe(self) -> dict[str, int | bool]:
        """For the record in the policy."""
        return {"tau_id": len(self.tau_id), "tau_ood": len(self.tau_ood), "exact": self.exact}


def _spread(length: int, size: int) -> NDArray[np.int64]:
    """At most `size` positions, evenly spaced from the first to the last."""
    return np.unique(np.linspace(0, length - 1, min(size, length)).round().astype(np.int64))


def _strictest(descending: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.intp]:
    return len(descending) - np.searchsorted(descending[::-1], values, side="right")


def _candidates(values: NDArray[np.float64], limit: int) -> tuple[NDArray[np.float64], bool]:
    distinct = np.unique(values)
    if len(distinct) <= limit:
        return distinct[::-1], True
    return np.unique(np.sort(values)[_spread(len(values), limit)])[::-1], False
