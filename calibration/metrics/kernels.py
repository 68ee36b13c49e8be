"""Compiled kernels; importing this module starts the compiler, so only callers with enough work do."""

import numpy as np

from calibration.metrics.compiled import compiled


@compiled
def best_step(leaf: np.ndarray, gain: np.ndarray, ends: np.ndarray, size: int) -> int:
    """The first step at which the largest prefix sum over the leaves is as large as it ever gets.

    A segment tree over the leaves keeps in each node the sum of its gains and its largest prefix sum.
    """
    total = np.zeros(2 * size, gain.dtype)
    prefix = np.zeros(2 * size, gain.dtype)
    found, best = -1, gain[0]
    row = 0
    for step in range(len(ends)):
        while row <= ends[step]:
            node = leaf[row] + size
            total[node] += gain[row]
            prefix[node] = total[node]
            node >>= 1
            while node > 0:
                left = 2 * node
                total[node] = total[left] + total[left + 1]
                prefix[node] = max(prefix[left], total[left] + prefix[left + 1])
                node >>= 1
            row += 1
        if found < 0 or prefix[1] > best:
            found, best = step, prefix[1]
    return found


@compiled
def _add(part: np.ndarray, amount: float) -> None:
    """Add to every element; a view keeps the loop free of checks for negative indices."""
    for j in range(len(part)):
        part[j] += amount


@compiled
def _insert(part: np.ndarray, first: float, amount: float) -> None:
    """Push `first` in at the front, move the others up by one, and add to all; the last element is spare."""
    for j in range(len(part)):
        pushed = part[j]
        part[j] = first + amount
        first = pushed


@compiled
def over_steps(
    leaf: np.ndarray,
    of_id: np.ndarray,
    of_wrong: np.ndarray,
    of_ood: np.ndarray,
    ends: np.ndarray,
    key: np.ndarray,
    entries: np.ndarray,
    held: np.ndarray,
    tree: np.ndarray,
    dense: bool,
    scale: float,
    n_cells: int,
) -> np.ndarray:
    """The smallest risk at each coverage cell, by the search of `coverage_plain` in loops.

    `dense` says that every entry is one ID row of amount one, so that entry j stands for cell j + 1.
    """
    best = np.full(n_cells + 1, np.inf)
    covered, wrong, ood = entries[0], entries[1], entries[2]
    size, row = held[0], 0
    for step in range(len(ends)):
        changed = size
        while row <= ends[step]:
            own = leaf[row]
            at = np.searchsorted(key[:size], own)
            node = own + 1
            if of_ood[row] > 0.0:
                while node < len(tree):
                    tree[node] += of_ood[row]
                    node += node & -node
                _add(ood[at:size], of_ood[row])
            elif at < size and key[at] == own:
                _add(covered[at:size], of_id[row])
                _add(wrong[at:size], of_wrong[row])
                changed = min(changed, at)
            else:
                above = 0.0
                while node > 0:
                    above += tree[node]
                    node &= node - 1
                _insert(key[at : size + 1], own, 0)
                _insert(covered[at : size + 1], covered[at - 1] if at > 0 else 0.0, of_id[row])
                _insert(wrong[at : size + 1], wrong[at - 1] if at > 0 else 0.0, of_wrong[row])
                _insert(ood[at : size + 1], above, 0.0)
                size += 1
                changed = min(changed, at)
            row += 1
        part_wrong, part_ood, part_covered = wrong[changed:size], ood[changed:size], covered[changed:size]
        if dense:
            part = best[changed + 1 : size + 1]
            for j in range(len(part)):
                risk = (part_wrong[j] + part_ood[j]) / (part_covered[j] + part_ood[j])
                part[j] = risk if risk < part[j] else part[j]
        else:
            for j in range(len(part_ood)):
                cell = int(part_covered[j] * scale + 0.5)
                risk = (part_wrong[j] + part_ood[j]) / (part_covered[j] + part_ood[j])
                best[cell] = risk if risk < best[cell] else best[cell]
    return best


@compiled
def over_grid(
    leaf: np.ndarray,
    step: np.ndarray,
    of_id: np.ndarray,
    of_wrong: np.ndarray,
    of_ood: np.ndarray,
    grid: np.ndarray,
    scale: float,
    n_cells: int,
) -> np.ndarray:
    """The smallest risk at each coverage cell for some values of tau_ood, with every tau_id.

    Rows come by falling s_id and are admitted where their step is not beyond the grid's; `scale` turns an accepted
    ID amount into its cell.
    """
    best = np.full(n_cells + 1, np.inf)
    n = len(leaf)
    for position in range(len(grid)):
        limit = grid[position]
        covered, wrong, ood = 0.0, 0.0, 0.0
        fresh = False
        for row in range(n):
            if step[row] <= limit:
                covered += of_id[row]
                wrong += of_wrong[row]
                ood += of_ood[row]
                fresh |= of_id[row] > 0.0
            if fresh and (row + 1 == n or leaf[row + 1] != leaf[row]):
                risk = (wrong + ood) / (covered + ood)
                cell = int(covered * scale + 0.5)
                if risk < best[cell]:
                    best[cell] = risk
                fresh = False
    return best
