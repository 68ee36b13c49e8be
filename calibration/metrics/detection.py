"""Ranking metrics of a binary question: is the label right (`failure`), is the row in-distribution (`ood`).

Rows without two finite scores rank below every other row. AUPR is average precision, which adds up precision over
steps of recall and does not interpolate. FPR@95 is the share of OOD accepted where 95 % of ID is.
"""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.ordering import Profile, Score, dot, increments, profile
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable


@dataclass(frozen=True)
class Failure:
    """How well a score tells correct from wrong labels on ID rows (Jaeger et al. 2023, Eq. 23 to 25)."""

    auroc: float
    ap: float
    """Average precision with correct rows as positives."""
    ap_err: float
    """Average precision with errors as positives and the lowest scores first."""


@dataclass(frozen=True)
class Ood:
    """How well a score tells ID from OOD rows."""

    auroc: float
    aupr_in: float
    aupr_out: float
    fpr95: float


def failure(table: ScoreTable, score: Score = "s_id") -> Failure:
    """Failure detection on the ID rows."""
    sweep = profile(table, score, table.correct, table.is_id)
    if sweep.total <= 0.0:
        raise Undefined("the table has no ID rows with weight")
    _need(sweep, "every ID row is wrong", "every ID row is correct")
    runs = Runs(sweep)
    return Failure(runs.auroc(), runs.average_precision(), runs.average_precision_of_bad())


def ood(table: ScoreTable, score: Score = "s_ood") -> Ood:
    """OOD detection on all rows, whether or not their labels are right."""
    return _ood(profile(table, score, table.is_id))


def ood_new_class(table: ScoreTable, score: Score = "s_ood") -> Ood:
    """OOD detection with misclassified ID rows removed: the new-class protocol of Jaeger et al. 2023, section 3.1."""
    return _ood(profile(table, score, table.is_id, table.correct | ~table.is_id))


def prediction_rejection_ratio(table: ScoreTable, score: Score = "s_id") -> float:
    """How far a score goes from random to perfect rejection of errors on ID rows (Malinin et al. 2020).

    With 0/1 loss the areas between the rejection curves make it 2 AUROC - 1.
    """
    return 2.0 * failure(table, score).auroc - 1.0


def _ood(sweep: Profile) -> Ood:
    _need(sweep, "the table has no ID rows with weight", "the table has no OOD rows with weight")
    runs = Runs(sweep)
    return Ood(runs.auroc(), runs.average_precision(), runs.average_precision_of_bad(), runs.fpr_at_tpr(0.95))


class Runs:
    """Good and bad weight of every run of equal scores, best first; rows without a rank are the last run."""

    def __init__(self, sweep: Profile) -> None:
        self.good_down_to = _complete(sweep.good, sweep.total_good)
        self.bad_down_to = _complete(sweep.bad, sweep.total_bad)
        self.good = increments(self.good_down_to)
        self.bad = increments(self.bad_down_to)
        self.total_good, self.total_bad = sweep.total_good, sweep.total_bad

    def auroc(self) -> float:
        """The chance that a good row scores above a bad one, a tie counting half."""
        above = (self.good_down_to - self.good / 2.0) / self.total_good  # a product of totals could leave the range
        return dot(above, self.bad) / self.total_bad

    def average_precision(self) -> float:
        """Mean precision at the thresholds of the good rows."""
        precision = self.good_down_to / (self.good_down_to + self.bad_down_to)
        return dot(self.good, precision) / self.total_good

    def average_precision_of_bad(self) -> float:
        """The same for the bad rows, from the lowest score up."""
        good, bad = np.cumsum(self.good[::-1]), np.cumsum(self.bad[::-1])
        first = int(np.argmax(bad > 0.0))  # before that there is nothing to find, and perhaps no row at all
        precision = bad[first:] / (good[first:] + bad[first:])
        return dot(self.bad[::-1][first:], precision) / self.total_bad

    def fpr_at_tpr(self, tpr: float) -> float:
        """The share of bad rows accepted at the strictest threshold that accepts the share `tpr` of the good ones."""
        first = int(np.argmax(self.good_down_to >= tpr * self.total_good * (1.0 - 1e-12)))
        return min(1.0, float(self.bad_down_to[first]) / self.total_bad)


def _complete(cumulative: np.ndarray, total: float) -> np.ndarray:
    """The running weight with a last entry for rows that no threshold ranks."""
    ranked = float(cumulative[-1]) if len(cumulative) else 0.0
    return np.append(cumulative, max(ranked, total))


def _need(sweep: Profile, without_good: str, without_bad: str) -> None:
    if sweep.total_good <= 0.0:
        raise Undefined(without_good)
    if sweep.total_bad <= 0.0:
        raise Undefined(without_bad)
