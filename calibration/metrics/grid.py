"""Sums over every pair of a grid of thresholds, and F1 as a surface over them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from calibration.metrics.double_f1 import id_weight
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable


@dataclass(frozen=True)
class F1Surface:
    """F1 at every pair of a grid: `f1[i, j]` belongs to `tau_id[i]` and `tau_ood[j]`, both ascending."""

    tau_id: np.ndarray
    tau_ood: np.ndarray
    f1: np.ndarray


def f1_surface(table: ScoreTable, size: int = 101) -> F1Surface:
    """F1 on a grid of score quantiles; it depends on the order of the scores alone, never on their scale."""
    n_id = id_weight(table)
    finite = table.finite
    s_id, s_ood, weight = table.s_id[finite], table.s_ood[finite], table.weights[finite]
    if not len(s_id):
        raise Undefined("no row has two finite scores")
    tau_id, tau_ood = _quantiles(s_id, size), _quantiles(s_ood, size)
    right_weight = np.where(table.correct[finite], weight, 0.0)
    right, accepted = grid_sums(s_id, s_ood, (tau_id, tau_ood), [right_weight, weight])
    return F1Surface(tau_id, tau_ood, 2.0 * right / (accepted + n_id))


def grid_sums(
    s_id: np.ndarray, s_ood: np.ndarray, thresholds: tuple[np.ndarray, np.ndarray], amounts: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """For each kind of amount, how much of it every pair of ascending thresholds accepts: O(rows + pairs)."""
    shape = (len(thresholds[0]) + 1, len(thresholds[1]) + 1)
    row = np.searchsorted(thresholds[0], s_id, side="right")
    column = np.searchsorted(thresholds[1], s_ood, side="right")
    cell = row * shape[1] + column
    sums = []
    for amount in amounts:
        mass = np.bincount(cell, amount, shape[0] * shape[1]).reshape(shape)
        sums.append(np.cumsum(np.cumsum(mass[::-1, ::-1], axis=0), axis=1)[::-1, ::-1][1:, 1:])
    return sums


def _quantiles(values: np.ndarray, size: int) -> np.ndarray:
    return np.unique(np.quantile(values, np.linspace(0.0, 1.0, size), method="inverted_cdf"))
