"""The smallest risk at every coverage by compiled kernels on all cores: for large tables and for resamples."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np

from calibration.metrics.coverage import Amounts, Found, attained
from calibration.metrics.thresholds import Steps

_BLOCKS = 16
"""Most blocks of tau_ood that are searched each on its own."""
_WORTH_A_BLOCK = 4
"""Pairs tried for each coverage cell from which a block is worth cells of its own."""
_SHARED_WORK = 1e8
"""Rows times values of tau_ood from which threads are worth starting."""


def search_all(pairs: Steps, amounts: Amounts) -> Found:
    """Every pair of thresholds, O(n) memory."""
    from calibration.metrics.kernels import over_steps

    n_steps = len(pairs.ends)
    # a step costs as much as rows were admitted before it, so that loose blocks must be short
    parts = _blocks(len(pairs.rows) * n_steps, amounts)
    bounds = np.unique((n_steps * np.sqrt(np.arange(parts + 1) / parts)).astype(np.int64))
    dense = amounts.whole and len(pairs.tau_id) == round(amounts.of_id.sum())

    def search(block: tuple[int, int]) -> np.ndarray:
        first, last = block
        start = int(pairs.ends[first - 1]) + 1 if first else 0
        stop = int(pairs.ends[last - 1]) + 1
        rows = [column[start:stop] for column in (pairs.leaf, amounts.of_id, amounts.of_wrong, amounts.of_ood)]
        state = _state(pairs, amounts, start)
        best: np.ndarray = over_steps(
            *rows, pairs.ends[first:last] - start, *state, dense, amounts.scale, amounts.n_cells
        )
        return best

    best = _on_all_cores(search, list(pairwise(bounds.tolist())), len(pairs.rows) * n_steps)
    return attained(best, amounts, exact=amounts.whole)


def search_grid(pairs: Steps, amounts: Amounts, size: int) -> Found:
    """`size` values of tau_ood at quantiles of the ID rows, with every tau_id."""
    from calibration.metrics.kernels import over_grid

    n_steps = len(pairs.ends)
    chosen = np.unique(np.linspace(0, n_steps - 1, min(size, n_steps)).round().astype(np.int64))
    step = np.repeat(np.arange(n_steps), np.diff(pairs.ends, prepend=-1))
    by_s_id = np.argsort(pairs.leaf, kind="stable")
    columns = [column[by_s_id] for column in (pairs.leaf, step, amounts.of_id, amounts.of_wrong, amounts.of_ood)]

    def search(block: np.ndarray) -> np.ndarray:
        admitted = columns[1] <= block[-1]  # a strict block need not look at rows that only loose ones admit
        rows = [column[admitted] for column in columns]
        best: np.ndarray = over_grid(*rows, block, amounts.scale, amounts.n_cells)
        return best

    parts = _blocks(len(pairs.rows) * len(chosen), amounts)
    blocks = [block for block in np.array_split(chosen, parts) if len(block)]
    best = _on_all_cores(search, blocks, len(pairs.rows) * len(chosen))
    return attained(best, amounts, exact=amounts.whole and len(chosen) == n_steps)


def _blocks(work: float, amounts: Amounts) -> int:
    """In how many blocks to search: with weights that have no unit, filling a block's cells can cost more than it."""
    return int(np.clip(work / (_WORTH_A_BLOCK * amounts.n_cells), 1, _BLOCKS))


def _on_all_cores(search: Callable[[Any], np.ndarray], blocks: list[Any], work: float) -> np.ndarray:
    """The smallest risks over all blocks; the kernels release the interpreter lock."""
    if work < _SHARED_WORK:
        parts = [search(block) for block in blocks]
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            parts = list(pool.map(search, blocks))
    best: np.ndarray = np.minimum.reduce(parts)
    return best


def _state(pairs: Steps, amounts: Amounts, start: int) -> tuple[np.ndarray, ...]:
    """Where a search stands after the first `start` rows: keys and amounts of entries, their number, the OOD tree."""
    size = len(pairs.tau_id)
    leaf = pairs.leaf[:start]
    per_leaf = [
        np.bincount(leaf, part[:start], size).astype(np.float64)
        for part in (amounts.of_id, amounts.of_wrong, amounts.of_ood)
    ]
    held = np.flatnonzero(per_leaf[0])
    key = np.zeros(size, dtype=np.int64)
    key[: len(held)] = held
    entries = np.zeros((3, size))
    for entry, part in zip(entries, per_leaf, strict=True):
        entry[: len(held)] = np.cumsum(part)[held]
    prefix = np.concatenate(([0.0], np.cumsum(per_leaf[2])))
    node = np.arange(size + 1)
    return key, entries, np.array([len(held)]), prefix - prefix[node & (node - 1)]
