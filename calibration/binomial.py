"""Exact binomial statements: p-values, Clopper-Pearson bounds, and how many samples a claim needs."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def p_value(wrong: ArrayLike, accepted: ArrayLike, risk: float) -> NDArray[np.float64]:
    """P(Bin(accepted, risk) ≤ wrong): small when this few errors contradict a true risk above `risk`.

    One where nothing was accepted: no data, no evidence.
    """
    from scipy.special import betainc

    k = np.asarray(wrong, dtype=np.float64)
    n = np.asarray(accepted, dtype=np.float64)
    sure = k >= n
    with np.errstate(invalid="ignore"):
        tail = betainc(np.where(sure, 1.0, n - k), k + 1.0, 1.0 - risk)
    return np.where(sure, 1.0, tail)


def upper_bound(events: ArrayLike, trials: ArrayLike, delta: float) -> NDArray[np.float64]:
    """The binomial tail inversion: the rate b with P(Bin(trials, b) ≤ events) = delta; one without trials."""
    from scipy.special import betaincinv

    k = np.asarray(events, dtype=np.float64)
    n = np.asarray(trials, dtype=np.float64)
    sure = k >= n
    bound = betaincinv(k + 1.0, np.where(sure, 1.0, n - k), 1.0 - delta)
    return np.where(sure, 1.0, bound)


def lower_bound(events: ArrayLike, trials: ArrayLike, delta: float) -> NDArray[np.float64]:
    """The mirror image: the rate b with P(Bin(trials, b) ≥ events) = delta; zero without events."""
    n = np.asarray(trials, dtype=np.float64)
    return 1.0 - upper_bound(n - np.asarray(events, dtype=np.float64), n, delta)


def clopper_pearson(events: int, trials: int, level: float) -> tuple[float, float]:
    """The two-sided exact interval of a proportion (Clopper & Pearson 1934)."""
    tail = (1.0 - level) / 2.0
    return float(lower_bound(events, trials, tail)), float(upper_bound(events, trials, tail))


def fewest_samples(risk: float, delta: float) -> int:
    """Accepted samples without a single error that certify `risk` at `delta`: nothing smaller can."""
    return math.ceil(math.log(delta) / math.log1p(-risk))


def samples_needed(risk: float, delta: float, true_risk: float, power: float = 0.9) -> int | None:
    """The fewest accepted samples that certify a true risk below `risk` with this power; None if it is not below.

    2,546 samples certify 1 % at delta 5 % when the truth is 0.5 %.
    """
    if true_risk >= risk:
        return None
    low, high = -1, 1
    while not _enough(high, risk, delta, true_risk, power):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _enough(middle, risk, delta, true_risk, power) else (middle, high)
    return _smallest_size(high, risk, delta)


def _smallest_size(allowed: int, risk: float, delta: float) -> int:
    """The smallest number of accepted samples at which `allowed` errors still certify the risk."""
    low, high = allowed, 2 * allowed + 1
    while p_value(allowed, high, risk) > delta:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if p_value(allowed, middle, risk) <= delta else (middle, high)
    return high


def _enough(allowed: int, risk: float, delta: float, true_risk: float, power: float) -> bool:
    """Whether the smallest sample that allows this many errors passes with the wanted power."""
    return bool(p_value(allowed, _smallest_size(allowed, risk, delta), true_risk) >= power)
