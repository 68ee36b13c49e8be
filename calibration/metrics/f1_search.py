"""Exact searches for the pair with the best F1: a plain scan for small tables, a segment tree for large ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibration.metrics.compiled import compiling_pays
from calibration.metrics.thresholds import Steps

_EXACT_TOTAL = 2**29
"""Total of whole-number weights up to which sums of gains fit in int64, so that nothing is rounded."""
_SCAN_OVERHEAD = 2000
"""What admitting a row costs the scan whatever the number of leaves, in leaves."""

_Sweep = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Pair:
    """A pair of thresholds and the weight it accepts."""

    step: int
    leaf: int
    accepted: float
    right: float


def best_pair(pairs: Steps, weight: np.ndarray, correct: np.ndarray, n_id: float) -> Pair:
    """The strictest pair with the best F1, by the cheapest search that is exact."""
    if len(pairs.tau_id) == 1 or len(pairs.ends) == 1:
        return by_sweep(pairs, weight, correct, n_id)
    work = len(pairs.rows) * (len(pairs.tau_id) + _SCAN_OVERHEAD)
    return (by_tree if compiling_pays(work) else by_scan)(pairs, weight, correct, n_id)


def by_sweep(pairs: Steps, weight: np.ndarray, correct: np.ndarray, n_id: float) -> Pair:
    """Where one score has a single threshold (it never varies), a sweep over the other sees every pair."""
    by_step = len(pairs.tau_id) == 1
    accepted, right = _with_one_gate_open(pairs, weight, correct)[0 if by_step else 1]
    best = int(np.argmax(right / (accepted + n_id)))
    step, leaf = (best, 0) if by_step else (0, best)
    return Pair(step, leaf, float(accepted[best]), float(right[best]))


def by_scan(pairs: Steps, weight: np.ndarray, correct: np.ndarray, n_id: float) -> Pair:
    """Admit rows step by step and look at every leaf that gained: O(n²), but in numpy's inner loops."""
    right = np.zeros(len(pairs.tau_id))
    accepted = np.zeros(len(pairs.tau_id))
    best, found = -1.0, Pair(0, 0, 0.0, 0.0)
    rows = list(zip(pairs.leaf.tolist(), weight.tolist(), correct.tolist(), strict=True))
    begin = 0
    for step, end in enumerate(pairs.ends.tolist()):
        gained = len(right)
        for leaf, amount, is_right in rows[begin : end + 1]:
            accepted[leaf:] += amount
            if is_right:
                right[leaf:] += amount
                gained = min(gained, leaf)
        begin = end + 1
        values = right[gained:] / (accepted[gained:] + n_id)
        top = int(values.argmax())
        if values[top] > best:
            best = float(values[top])
            leaf = gained + top
            found = Pair(step, leaf, float(accepted[leaf]), float(right[leaf]))
    return found


def by_tree(pairs: Steps, weight: np.ndarray, correct: np.ndarray, n_id: float) -> Pair:
    """Dinkelbach's iteration: O(n log n) a round, and two or three rounds from the best pair with one gate open.

    A ratio TA·2 / (|A| + n_id) exceeds λ exactly where Σ w·(2·correct − λ) exceeds λ·n_id. Each round finds the pair
    with the largest sum; its F1 is the next λ, until none is larger. λ = p/q is kept as a fraction, so that with
    whole-number weights every comparison is exact.
    """
    from calibration.metrics.kernels import best_step

    whole = _are_whole(weight, n_id)
    number = np.int64 if whole else np.float64
    exact: Callable[[float], Any] = round if whole else float
    amounts, right_amounts = weight.astype(number), np.where(correct, weight, 0.0).astype(number)
    accepted, right = _best_with_one_gate_open(pairs, weight, correct, n_id)
    p, q = exact(2.0 * right), exact(accepted + n_id)
    found: Pair | None = None
    while True:
        gain = 2 * q * right_amounts - p * amounts
        step = int(best_step(pairs.leaf, gain, pairs.ends, _leaves(pairs)))
        pair = _best_leaf(pairs, step, weight, correct, p, q)
        p_next, q_next = exact(2.0 * pair.right), exact(pair.accepted + n_id)
        if p_next * q <= p * q_next:
            # equal in exact arithmetic: this sweep named the strictest best pair; rounding may have named a worse one
            return pair if found is None or p_next * q == p * q_next else found
        found, p, q = pair, p_next, q_next


def _best_with_one_gate_open(pairs: Steps, weight: np.ndarray, correct: np.ndarray, n_id: float) -> tuple[float, float]:
    """Accepted and right weight of the best pair in which one threshold is as loose as it can be."""
    sweeps = _with_one_gate_open(pairs, weight, correct)
    best = [int(np.argmax(right / (accepted + n_id))) for accepted, right in sweeps]
    found = [(float(accepted[at]), float(right[at])) for (accepted, right), at in zip(sweeps, best, strict=True)]
    return max(found, key=lambda pair: pair[1] / (pair[0] + n_id))


def _with_one_gate_open(pairs: Steps, weight: np.ndarray, correct: np.ndarray) -> tuple[_Sweep, _Sweep]:
    """Accepted and right weight by step under the loosest tau_id, and by leaf under the loosest tau_ood."""
    right_weight = np.where(correct, weight, 0.0)
    size = len(pairs.tau_id)
    return (
        (np.cumsum(weight)[pairs.ends], np.cumsum(right_weight)[pairs.ends]),
        (np.cumsum(np.bincount(pairs.leaf, weight, size)), np.cumsum(np.bincount(pairs.leaf, right_weight, size))),
    )


def _are_whole(weight: np.ndarray, n_id: float) -> bool:
    return bool(weight.sum() + n_id <= _EXACT_TOTAL and n_id == round(n_id) and (weight == np.rint(weight)).all())


def _leaves(pairs: Steps) -> int:
    return 1 << max(0, len(pairs.tau_id) - 1).bit_length()


def _best_leaf(pairs: Steps, step: int, weight: np.ndarray, correct: np.ndarray, p: Any, q: Any) -> Pair:
    """The strictest tau_id with the largest sum of gains under a given tau_ood."""
    admitted = slice(0, int(pairs.ends[step]) + 1)
    leaf, amounts = pairs.leaf[admitted], weight[admitted]
    size = len(pairs.tau_id)
    accepted = np.cumsum(np.bincount(leaf, amounts, size))
    right = np.cumsum(np.bincount(leaf, np.where(correct[admitted], amounts, 0.0), size))
    number = np.int64 if isinstance(p, int) else np.float64
    best = int(np.argmax(2 * q * right.astype(number) - p * accepted.astype(number)))
    return Pair(step, best, float(accepted[best]), float(right[best]))
