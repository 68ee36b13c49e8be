"""What a pair of thresholds does to a table."""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable


@dataclass(frozen=True)
class Counts:
    """Weights of the outcomes of a gate (rows, where a table has no weights); Li et al., section 3.1."""

    true_accepts: float
    """Accepted, ID and correct."""
    false_accepts_id: float
    """Accepted, ID and misclassified."""
    false_accepts_ood: float
    """Accepted and OOD."""
    n_id: float
    n_ood: float

    @property
    def accepted(self) -> float:
        """Everything the gate lets through."""
        return self.true_accepts + self.false_accepts_id + self.false_accepts_ood

    @property
    def false_rejects(self) -> float:
        """ID rows that were not correctly accepted: rejected, or accepted with the wrong label."""
        return self.n_id - self.true_accepts

    @property
    def precision(self) -> float:
        """TA / |A|, and 0 where nothing is accepted."""
        return self.true_accepts / self.accepted if self.accepted > 0.0 else 0.0

    @property
    def recall(self) -> float:
        """TA / n_id."""
        return self.true_accepts / self._id()

    @property
    def f1(self) -> float:
        """2 TA / (|A| + n_id), and 0 where nothing is accepted."""
        return 2.0 * self.true_accepts / (self.accepted + self._id())

    @property
    def coverage(self) -> float:
        """Share of the ID rows that is accepted (Eq. 4)."""
        return (self.true_accepts + self.false_accepts_id) / self._id()

    @property
    def acceptance(self) -> float:
        """Share of all rows that is accepted."""
        total = self.n_id + self.n_ood
        if total <= 0.0:
            raise Undefined("the table has no rows with weight")
        return self.accepted / total

    @property
    def risk(self) -> float:
        """Share of errors and OOD among the accepted (Eq. 7)."""
        if self.accepted <= 0.0:
            raise Undefined("nothing is accepted, so there is no selective risk")
        return (self.false_accepts_id + self.false_accepts_ood) / self.accepted

    def _id(self) -> float:
        if self.n_id <= 0.0:
            raise Undefined("the table has no ID rows with weight")
        return self.n_id


def counts_at(table: ScoreTable, tau_id: float = -np.inf, tau_ood: float = -np.inf) -> Counts:
    """The outcomes under one pair of thresholds; -inf leaves a door open, non-finite scores never pass."""
    accepted = table.finite & (table.s_id >= tau_id) & (table.s_ood >= tau_ood)
    return counts_of(table, accepted)


def counts_of(table: ScoreTable, accepted: np.ndarray) -> Counts:
    """The outcomes of any acceptance mask, such as the decisions of a policy."""
    weight = table.weights
    passed = np.where(accepted, weight, 0.0)
    n_id = float(weight[table.is_id].sum())
    right = float(passed[table.correct].sum())
    wrong = float(passed[table.is_id & ~table.correct].sum())
    return Counts(right, wrong, float(passed[~table.is_id].sum()), n_id, float(weight[~table.is_id].sum()))
