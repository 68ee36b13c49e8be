"""Ranks of several methods over blocks: do they differ, which pairs, and which groups cannot be told apart.

Friedman's test on mid-ranks with the Iman-Davenport F approximation, Conover's post-hoc t test with Holm's correction,
and the maximal cliques of methods that are mutually not significantly different (Bron & Kerbosch 1973).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Average ranks (1 is best) and what can be said about their differences."""

    methods: tuple[str, ...]
    blocks: int
    average_rank: Floats
    friedman: float
    friedman_p: float
    iman_davenport: float
    iman_davenport_p: float
    adjusted_p: Floats  # [k, k], Conover with Holm; 1 on the diagonal
    cliques: tuple[tuple[int, ...], ...]  # by best average rank; a method may be in several
    alpha: float

    @property
    def significant(self) -> bool:
        """Whether the methods differ at all, by Iman and Davenport's F."""
        return self.iman_davenport_p < self.alpha


def rank_methods(methods: Sequence[str], values: Floats, alpha: float = 0.05) -> Ranking:
    """Compare methods by a table of values [blocks, methods] in which higher is better."""
    from scipy.stats import rankdata

    ranks = np.asarray(rankdata(-values, axis=1))
    n, k = ranks.shape
    if n < 2 or k < 3:
        raise ValueError(f"ranks need at least 2 blocks and 3 methods, not {n} and {k}")
    totals = ranks.sum(axis=0)
    q, q_p = _friedman(ranks, totals)
    f, f_p = _iman_davenport(q, n, k)
    adjusted = holm(_conover(ranks, totals))
    order = totals / n
    # Pairs are looked at only where the methods differ at all; otherwise none is told apart from another.
    alike = adjusted >= alpha if f_p < alpha else np.ones((k, k), bool)
    return Ranking(tuple(methods), n, order, q, q_p, f, f_p, adjusted, _cliques(alike, order), alpha)


def holm(p: Floats) -> Floats:
    """Holm's step-down adjustment of a symmetric matrix of p-values."""
    k = len(p)
    above = np.triu_indices(k, 1)
    raw = p[above]
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.ones((k, k))
    flat = np.empty(len(raw))
    flat[order] = np.minimum(stepped, 1.0)
    adjusted[above] = flat
    adjusted.T[above] = flat
    return adjusted


def _friedman(ranks: Floats, totals: Floats) -> tuple[float, float]:
    """Friedman's statistic with the correction for ties; 0 where every block ties all methods."""
    from scipy.stats import chi2

    n, k = ranks.shape
    spread = float((ranks**2).sum() - n * k * (k + 1) ** 2 / 4)
    if spread <= 0.0:
        return 0.0, 1.0
    q = (k - 1) * float(((totals - n * (k + 1) / 2) ** 2).sum()) / spread
    return q, float(chi2.sf(q, k - 1))


def _iman_davenport(q: float, n: int, k: int) -> tuple[float, float]:
    """F = (N−1)Q / (N(k−1) − Q) on k−1 and (k−1)(N−1) degrees of freedom; infinite where all blocks agree."""
    from scipy.stats import f as f_distribution

    rest = n * (k - 1) - q
    if rest <= 1e-12 * n * k:
        return float("inf"), 0.0
    f = (n - 1) * q / rest
    return f, float(f_distribution.sf(f, k - 1, (k - 1) * (n - 1)))


def _conover(ranks: Floats, totals: Floats) -> Floats:
    """Two-sided p-values of every pair (Conover 1999, section 5.8): t on (N−1)(k−1) degrees of freedom."""
    from scipy.stats import t as t_distribution

    n, k = ranks.shape
    freedom = (n - 1) * (k - 1)
    left_over = 2.0 * (n * float((ranks**2).sum()) - float((totals**2).sum())) / freedom
    gaps = np.abs(totals[:, None] - totals[None, :])
    if left_over <= 1e-12:
        return np.where(gaps > 0.0, 0.0, 1.0)
    return np.asarray(2.0 * t_distribution.sf(gaps / np.sqrt(left_over), freedom))


def _cliques(indifferent: NDArray[np.bool_], order: Floats) -> tuple[tuple[int, ...], ...]:
    neighbours = [set(np.flatnonzero(row).tolist()) - {i} for i, row in enumerate(indifferent)]
    found = [
        tuple(sorted(clique, key=lambda i: order[i]))
        for clique in _maximal(set(), set(range(len(order))), set(), neighbours)
    ]
    return tuple(sorted(found, key=lambda clique: (order[clique[0]], float(np.mean(order[list(clique)])))))


def _maximal(chosen: set[int], open_: set[int], done: set[int], neighbours: list[set[int]]) -> Iterator[set[int]]:
    """Bron & Kerbosch with a pivot of high degree."""
    if not open_ and not done:
        yield set(chosen)
        return
    pivot = max(open_ | done, key=lambda v: len(neighbours[v] & open_))
    for v in sorted(open_ - neighbours[pivot]):
        yield from _maximal(chosen | {v}, open_ & neighbours[v], done & neighbours[v], neighbours)
        open_ = open_ - {v}
        done = done | {v}
