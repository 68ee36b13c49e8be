"""Metrics of predicted probabilities on ID rows: NLL, Brier score, ECE and the bins of a reliability diagram."""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.double_f1 import id_weight
from calibration.metrics.ordering import dot
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable


@dataclass(frozen=True)
class Reliability:
    """Confidence against accuracy in equal bins of the largest probability; bins without rows hold NaN."""

    edges: np.ndarray
    weight: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def ece(self) -> float:
        """Expected calibration error: the gap between the two, averaged over rows."""
        held = self.weight > 0.0
        gap = np.abs(self.confidence[held] - self.accuracy[held])
        return dot(gap, self.weight[held]) / float(self.weight.sum())


def accuracy(table: ScoreTable) -> float:
    """The share of ID rows with the right label."""
    return float(table.weights[table.correct].sum()) / id_weight(table)


def nll(table: ScoreTable) -> float:
    """Mean negative log-likelihood of the label."""
    probability, weight = _of_label(table)
    used = weight > 0.0
    if (probability[used] <= 0.0).any():
        raise Undefined("an ID row has probability 0 for its label, so the likelihood is 0")
    return dot(-np.log(probability[used]), weight[used]) / float(weight.sum())


def brier(table: ScoreTable) -> float:
    """Mean squared distance of the probabilities from the label, summed over classes."""
    of_label, weight = _of_label(table)
    squares = (_probabilities(table)[table.is_id] ** 2).sum(axis=1) - 2.0 * of_label + 1.0
    return dot(squares, weight) / float(weight.sum())


def ece(table: ScoreTable, bins: int = 15) -> float:
    """Expected calibration error over equal bins."""
    return reliability(table, bins).ece


def reliability(table: ScoreTable, bins: int = 15) -> Reliability:
    """Bins of a reliability diagram; a bin holds its upper edge."""
    id_weight(table)
    confidence = _probabilities(table)[table.is_id].max(axis=1)
    weight, right = table.weights[table.is_id], table.correct[table.is_id]
    edges = np.linspace(0.0, 1.0, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    total = np.bincount(place, weight, bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, weight * confidence, bins) / total
        share = np.bincount(place, weight * right, bins) / total
    return Reliability(edges, total, mean, share)


def _probabilities(table: ScoreTable) -> np.ndarray:
    if table.probabilities is None:
        raise Undefined("the table has no probabilities")
    return table.probabilities


def _of_label(table: ScoreTable) -> tuple[np.ndarray, np.ndarray]:
    """For every ID row the probability of its label, and its weight."""
    id_weight(table)
    probabilities = _probabilities(table)[table.is_id]
    if table.label is None:
        raise Undefined("the table has no label column")
    label = table.label[table.is_id]
    if label.dtype.kind != "i" or (label < 0).any() or (label >= probabilities.shape[1]).any():
        raise Undefined(f"labels of ID rows must be class numbers from 0 to {probabilities.shape[1] - 1}")
    return probabilities[np.arange(len(label)), label], table.weights[table.is_id]
