"""The selectors without a certificate: the exact DS-F1 optimum and two baselines."""

import math

import numpy as np
from numpy.typing import NDArray

from calibration.best import best_pair
from calibration.binomial import clopper_pearson
from calibration.errors import SelectionRefused
from calibration.resample import LEVEL, accepted_by, f1_interval
from calibration.select.base import Parameters, Promise, Selection, Selector, stated_mix
from calibration.select.grid import Grid
from calibration.splits import Splits


class DsF1Selector(Selector):
    """The pair with the largest F1 on the selection split, over all pairs (Li et al., Eq. 3)."""

    name = "dsf1"
    summary = "largest F1 over all threshold pairs, exact"
    goal = "f1"

    def select(self, splits: Splits, parameters: Parameters) -> Selection:
        table = stated_mix(splits.selection, parameters)
        best = best_pair(table)
        if best.f1 <= 0:
            raise SelectionRefused(
                "no ID sample of the selection split is correct and has two finite scores: F1 is 0 everywhere"
            )
        low, _ = f1_interval(table, accepted_by(table, best.tau_id, best.tau_ood), seed=parameters.seed)
        promise = Promise("f1", low, "at_least")
        return Selection(best.tau_id, best.tau_ood, (promise,), details={"f1": best.f1, "f1_low": low})


class CoverageSelector(Selector):
    """Keep a share of ID, and among the pairs that do let the least wrong through."""

    name = "coverage"
    summary = "keep a share of ID samples (--min-coverage, default 90 %), fewest wrong accepted"
    goal = "risk"
    share = 0.9

    def select(self, splits: Splits, parameters: Parameters) -> Selection:
        table = stated_mix(splits.selection, parameters)
        share = parameters.min_coverage or self.share
        grid = Grid.of(table, table.is_id)
        kept = grid.counts(table, table.is_id, weighted=True)
        total = float(table.weights[table.is_id].sum())
        enough = kept >= share * total * (1 - 1e-12)
        if not enough.any():
            top = float(kept.max(initial=0.0)) / total
            raise SelectionRefused(
                f"{share:.0%} of ID cannot be kept: only {top:.1%} of the ID samples have two finite scores"
            )
        wrong = grid.counts(table, ~table.correct, weighted=True)
        best = _best(enough, wrong, kept)
        tau_id, tau_ood = grid.pair(best)
        promise = Promise("id_coverage", _safe(kept.ravel()[best] / total, table.n_id), "at_least")
        details = {"share": share, "grid": grid.describe()}
        return Selection(tau_id, tau_ood, (promise,), details=details, notes=grid.notes())


class TprSelector(Selector):
    """The 95 % rule, door by door: 95 % of ID pass the OOD door, 95 % of the correct pass the ID door."""

    name = "tpr"
    summary = "the 95 % rule for each door on its own (--min-coverage changes the 95 %)"
    goal = "risk"
    share = 0.95

    def select(self, splits: Splits, parameters: Parameters) -> Selection:
        table = splits.selection
        share = parameters.min_coverage or self.share
        tau_ood = _keeping(table.s_ood, table.weights, table.is_id, share, "s_ood")
        tau_id = _keeping(table.s_id, table.weights, table.correct, share, "s_id")
        promises = (
            Promise("ood_door_tpr", _safe(share, table.n_id), "at_least"),
            Promise("id_door_tpr", _safe(share, int(table.correct.sum())), "at_least"),
        )
        return Selection(tau_id, tau_ood, promises, details={"share": share})


def _safe(share: float, rows: int) -> float:
    """What a share measured on so many rows allows to claim: the lower end of its exact interval."""
    return clopper_pearson(math.floor(share * rows), rows, LEVEL)[0]


def _best(allowed: NDArray[np.bool_], wrong: NDArray, kept: NDArray) -> int:
    """The allowed cell with the least wrong, then the most kept, then the strictest ID door."""
    cells = np.flatnonzero(allowed)
    return int(cells[np.lexsort((-kept.ravel()[cells], wrong.ravel()[cells]))[0]])


def _keeping(score: NDArray, weights: NDArray, rows: NDArray[np.bool_], share: float, name: str) -> float:
    """The largest value that at least this share of the rows (by weight) reaches."""
    values = np.where(np.isfinite(score[rows]), score[rows], -np.inf)  # a row without a score reaches nothing
    order = np.argsort(-values, kind="stable")
    reached = np.cumsum(weights[rows][order])
    needed = share * float(weights[rows].sum()) * (1 - 1e-12)
    index = int(np.searchsorted(reached, needed))
    if index >= len(values) or not np.isfinite(values[order[index]]):
        raise SelectionRefused(f"{share:.0%} cannot be kept at the {name} door: too few rows have a finite {name}")
    return float(values[order[index]])
