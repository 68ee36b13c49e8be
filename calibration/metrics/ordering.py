"""Rows sorted by a score, once a table, and the running sums every single-score metric is made of."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from calibration.errors import TableError
from calibration.table import ScoreTable

Score = Literal["s_id", "s_ood"]
SCORES: tuple[Score, Score] = ("s_id", "s_ood")


@dataclass(frozen=True)
class Ranking:
    """The finite rows from the highest score to the lowest; equal scores form one run."""

    rows: np.ndarray
    """Row numbers, best first."""
    ends: np.ndarray
    """Position in `rows` of the last row of every run."""

    @cached_property
    def run(self) -> np.ndarray:
        """The number of the run that each position of `rows` belongs to."""
        starts = np.zeros(len(self.rows), dtype=np.intp)
        starts[self.ends[:-1] + 1] = 1
        return np.cumsum(starts)

    @cached_property
    def starts(self) -> np.ndarray:
        """Position in `rows` of the first row of every run."""
        return np.concatenate(([0], self.ends[:-1] + 1)) if len(self.ends) else self.ends

    def landmarks(self, marked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which runs hold a marked row, and for each position how many such runs stand strictly above it."""
        if not len(self.rows):
            return np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
        holds = np.logical_or.reduceat(marked[self.rows], self.starts)
        above = np.cumsum(holds) - holds
        return holds, above[self.run]


def ranking(table: ScoreTable, score: Score) -> Ranking:
    """The ranking of a table by one score; kept with the table, whatever its weights become."""
    if score not in SCORES:
        raise TableError(f"There is no score {score!r}; choose s_id or s_ood.")
    known = table.orders.get(score)
    if isinstance(known, Ranking):
        return known
    made = _ranking(getattr(table, score), table.finite)
    table.orders[score] = made
    return made


def _ranking(values: np.ndarray, finite: np.ndarray) -> Ranking:
    everything = bool(finite.all())
    kept = values if everything else values[finite]
    order = np.argsort(kept)[::-1]
    kept = kept[order]
    last = np.ones(len(kept), dtype=bool)
    np.not_equal(kept[1:], kept[:-1], out=last[:-1])
    return Ranking(order if everything else np.flatnonzero(finite)[order], np.flatnonzero(last))


@dataclass(frozen=True)
class Profile:
    """What each threshold of a score accepts: weight of the good and of the bad rows at or above it.

    Thresholds are the distinct finite scores, highest first. Rows that can never be accepted are in the totals only.
    """

    threshold: np.ndarray
    good: np.ndarray
    bad: np.ndarray
    total_good: float
    total_bad: float

    @property
    def accepted(self) -> np.ndarray:
        """Accepted weight at each threshold."""
        return np.asarray(self.good + self.bad)

    @property
    def total(self) -> float:
        """Weight of all rows."""
        return self.total_good + self.total_bad


def dot(left: np.ndarray, right: np.ndarray) -> float:
    """The sum of products, added in pairs; BLAS would wake its threads for each of many short ones."""
    return float(np.sum(left * right))


def increments(cumulative: np.ndarray) -> np.ndarray:
    """What each entry of a running sum adds to the one before."""
    added = np.empty_like(cumulative)
    added[:1] = cumulative[:1]
    np.subtract(cumulative[1:], cumulative[:-1], out=added[1:])
    return added


def profile(table: ScoreTable, score: Score, good: np.ndarray, among: np.ndarray | None = None) -> Profile:
    """Sweep the threshold of a score from high to low over all rows, or those `among` which it is judged."""
    order = ranking(table, score)
    taken = np.ones(len(table), dtype=bool) if among is None else among
    kinds = (good & taken, ~good & taken)
    (of_good, total_good), (of_bad, total_bad) = (_cumulative(table.weight, kind, order) for kind in kinds)
    threshold = getattr(table, score)[order.rows[order.ends]]
    if table.weight is not None or among is not None:  # a run without weight is no threshold of its own
        moved = (increments(of_good) > 0.0) | (increments(of_bad) > 0.0)
        threshold, of_good, of_bad = threshold[moved], of_good[moved], of_bad[moved]
    return Profile(threshold, of_good, of_bad, total_good, total_bad)


def running(
    table: ScoreTable, score: Score, kinds: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The distinct finite scores, highest first, and for each kind of row the weight at or above them."""
    order = ranking(table, score)
    sums = tuple(_cumulative(table.weight, kind, order)[0] for kind in kinds)
    return getattr(table, score)[order.rows[order.ends]], sums


def _cumulative(weight: np.ndarray | None, kind: np.ndarray, order: Ranking) -> tuple[np.ndarray, float]:
    """The weight of one kind of row down to each run, and in all rows."""
    if weight is None:
        counts = np.cumsum(kind[order.rows], dtype=np.int64)  # ten times as fast as summing floats
        sums, total = counts.astype(np.float64), float(np.count_nonzero(kind))
    else:
        amount = np.where(kind, weight, 0.0)
        sums, total = np.cumsum(amount[order.rows]), float(amount.sum())
    return (sums if len(order.ends) == len(sums) else sums[order.ends]), total
