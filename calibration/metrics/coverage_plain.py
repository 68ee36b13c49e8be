"""The smallest risk at every coverage over all pairs of thresholds, in numpy: for tables that need no compiler."""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from calibration.metrics.coverage import Amounts, Found, attained
from calibration.metrics.thresholds import Steps

_COLLECTED_ROWS = 2000
"""ID rows up to which coverages under weights without a common unit are kept apart, however close."""


def plain_search(pairs: Steps, amounts: Amounts) -> Found:
    """Every pair, in numpy."""
    batches = _by_steps(pairs, amounts.of_id, amounts.of_wrong, amounts.of_ood)
    if not amounts.whole and np.count_nonzero(amounts.of_id) <= _COLLECTED_ROWS:
        return _collected(batches)
    best = np.full(amounts.n_cells + 1, np.inf)
    for covered, risk in batches:
        cell = (covered * amounts.scale + 0.5).astype(np.intp)
        if amounts.whole:  # then no two coverages of a batch share a cell
            best[cell] = np.minimum(best[cell], risk)
        else:
            np.minimum.at(best, cell, risk)
    return attained(best, amounts, exact=amounts.whole)


def _collected(batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> Found:
    """Every attained coverage on its own; sums of the same weights in another order count as one coverage."""
    parts = [(covered.copy(), risk) for covered, risk in batches]
    covered, risk = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((risk, covered))
    covered, risk = covered[order], risk[order]
    starts = np.flatnonzero(np.diff(covered, prepend=-1.0) > 1e-12 * covered)
    return covered[starts], np.minimum.reduceat(risk, starts), True


def _by_steps(
    pairs: Steps, of_id: np.ndarray, of_wrong: np.ndarray, of_ood: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The accepted ID amounts and risks of all pairs that can be best at their coverage, in small batches.

    Loosening tau_ood admits rows one by one. Each distinct tau_id with an accepted ID row is an entry: the ID, wrong
    and OOD amounts accepted at or above it. A row changes the entries from its own on. Entries before the first new
    ID row need no second look: they accept the same ID rows and at least as much OOD. Coverages rise within a batch.
    """
    entries = np.zeros((3, len(pairs.tau_id)))
    id_amounts, wrong_amounts, ood_amounts = entries
    keys: list[int] = []
    outside = _Prefix(len(pairs.tau_id))
    rows = list(zip(pairs.leaf.tolist(), of_id.tolist(), of_wrong.tolist(), of_ood.tolist(), strict=True))
    begin = 0
    for end in pairs.ends.tolist():
        changed = len(keys)
        for leaf, id_amount, wrong_amount, ood_amount in rows[begin : end + 1]:
            at = bisect_left(keys, leaf)
            if ood_amount > 0.0:
                outside.add(leaf, ood_amount)
                ood_amounts[at : len(keys)] += ood_amount
                continue
            if at == len(keys) or keys[at] != leaf:
                _open_entry(entries, keys, at, leaf, outside.at_or_above(leaf))
            id_amounts[at : len(keys)] += id_amount
            if wrong_amount > 0.0:
                wrong_amounts[at : len(keys)] += wrong_amount
            changed = min(changed, at)
        begin = end + 1
        covered, wrong, ood = entries[:, changed : len(keys)]
        yield covered, (wrong + ood) / (covered + ood)


def _open_entry(entries: np.ndarray, keys: list[int], at: int, leaf: int, ood: float) -> None:
    """Insert the entry of a leaf that had no accepted ID row: the ID part of the entry above it, its own OOD."""
    entries[:, at + 1 : len(keys) + 1] = entries[:, at : len(keys)]
    entries[:2, at] = entries[:2, at - 1] if at else 0.0
    entries[2, at] = ood
    keys.insert(at, leaf)


class _Prefix:
    """Sums over leaves that grow (a Fenwick tree)."""

    def __init__(self, size: int) -> None:
        self._nodes = [0.0] * (size + 1)

    def add(self, leaf: int, amount: float) -> None:
        node = leaf + 1
        while node < len(self._nodes):
            self._nodes[node] += amount
            node += node & -node

    def at_or_above(self, leaf: int) -> float:
        node, total = leaf + 1, 0.0
        while node:
            total += self._nodes[node]
            node &= node - 1
        return total
