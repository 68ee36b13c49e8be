"""DS-F1: the best F1 over all pairs of thresholds, exactly (Li et al., From Misclassifications to Outliers, Eq. 3).

F1 of a pair is 2 TA / (|A| + n_id), with A the accepted rows and TA the accepted, correct ID rows among them.
"""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.f1_search import best_pair
from calibration.metrics.ordering import Score, profile
from calibration.metrics.thresholds import steps
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable


@dataclass(frozen=True)
class F1:
    """The best F1 of one score on mixed data, the other gate left open; `tau` is its strictest threshold."""

    value: float
    tau: float


@dataclass(frozen=True)
class DsF1:
    """The best F1 of the double gate and the strictest pair of thresholds that reaches it.

    Thresholds are scores of accepted rows; both are +inf (accept nothing) where no pair accepts a correct row.
    """

    value: float
    tau_id: float
    tau_ood: float
    precision: float
    recall: float


def f1(table: ScoreTable, score: Score) -> F1:
    """The best F1 with one score alone, on the same mixed data."""
    n_id = id_weight(table)
    sweep = profile(table, score, table.correct)
    values = 2.0 * sweep.good / (sweep.accepted + n_id)
    if not len(values) or values.max() <= 0.0:
        return F1(0.0, np.inf)
    best = int(np.argmax(values))
    return F1(float(values[best]), float(sweep.threshold[best]))


def ds_f1(table: ScoreTable) -> DsF1:
    """DS-F1 with its thresholds, precision and recall.

    >>> table = ScoreTable.from_columns(s_id=[3, 2, 1], s_ood=[1, 3, 2], is_id=[1, 0, 1], correct=[1, 0, 0])
    >>> ds_f1(table)
    DsF1(value=0.6666666666666666, tau_id=3.0, tau_ood=1.0, precision=1.0, recall=0.5)
    """
    n_id = id_weight(table)
    pairs = steps(table, table.correct)
    if not len(pairs.ends):
        return DsF1(0.0, np.inf, np.inf, 0.0, 0.0)
    weight, correct = table.weights[pairs.rows], table.correct[pairs.rows]
    found = best_pair(pairs, weight, correct, n_id)
    return DsF1(
        value=2.0 * found.right / (found.accepted + n_id),
        tau_id=float(pairs.tau_id[found.leaf]),
        tau_ood=float(pairs.tau_ood[found.step]),
        precision=found.right / found.accepted,
        recall=found.right / n_id,
    )


def id_weight(table: ScoreTable) -> float:
    """Total weight of the ID rows; F1, recall and coverage have no meaning without any."""
    total = float(table.weights[table.is_id].sum())
    if total <= 0.0:
        raise Undefined("the table has no ID rows with weight")
    return total
