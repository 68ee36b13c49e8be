"""Confidence sequences: intervals of a rate that hold at all times at once."""

import math
from dataclasses import dataclass

JEFFREYS = 0.5


@dataclass(frozen=True)
class Interval:
    """A rate with its interval; `estimate` is None before the first trial."""

    estimate: float | None
    low: float
    high: float


def confidence_sequence(events: float, trials: float, alpha: float) -> Interval:
    """All rates p whose beta-binomial mixture martingale has not reached 1/α (Robbins 1970; Howard et al. 2021).

    With a Beta(½, ½) mixture, p stays while B(½+k, ½+n-k)/B(½, ½) < p^k (1-p)^(n-k) / α. The right side is
    log-concave in p with its peak at k/n, so each end is found by bisection.
    """
    if trials <= 0:
        return Interval(None, 0.0, 1.0)
    k, n = float(events), float(trials)
    floor = _log_beta(JEFFREYS + k, JEFFREYS + n - k) - _log_beta(JEFFREYS, JEFFREYS) + math.log(alpha)
    peak = k / n
    low = 0.0 if k <= 0 else _crossing(0.0, peak, k, n, floor)
    high = 1.0 if k >= n else _crossing(1.0, peak, k, n, floor)
    return Interval(peak, low, high)


def _crossing(outside: float, inside: float, k: float, n: float, floor: float) -> float:
    for _ in range(60):
        middle = 0.5 * (outside + inside)
        if _log_likelihood(middle, k, n) > floor:
            inside = middle
        else:
            outside = middle
    return outside


def _log_likelihood(p: float, k: float, n: float) -> float:
    hits = k * math.log(p) if k else 0.0
    return hits + ((n - k) * math.log1p(-p) if n > k else 0.0)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
