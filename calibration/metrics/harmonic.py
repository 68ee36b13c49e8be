"""Harmonic and logarithmic rank weights, averaged over runs of ties, for whole or fractional amounts.

With weights as amounts, ranks are real numbers and sums over ranks become differences of the digamma and log-gamma
functions. As they stand, those differences lose every digit for a small run above a large amount. Here each is
written with log1p and the difference quotients of Stirling's series. H(x) is the harmonic number of a real x.
"""

import numpy as np

_LARGE = 32
"""The series is exact in double precision from here on; smaller arguments are shifted by as much."""


def harmonic_difference(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    """H(x + d) - H(x) for x, d >= 0."""
    small = np.flatnonzero(x < _LARGE)
    large = x.copy()
    large[small] += _LARGE
    u, v = 1.0 / large, 1.0 / (large + d)
    result = np.log1p(d * u) - d * u * v * (0.5 - _tail(u, v))
    a, g = x[small], d[small]
    for j in range(1, _LARGE + 1):
        result[small] += g / ((a + j) * (a + g + j))
    return np.asarray(result)


def mean_harmonic_gain(above: np.ndarray, run: np.ndarray) -> np.ndarray:
    """Mean over q = 1..run of H(above + run) - H(above + run - q), which is 1 - above/run (H(above + run) - H(above)).

    For a run of one row it is 1 / (above + 1).
    """
    gain = 1.0 / (above + 1.0)
    tied = np.flatnonzero(run != 1.0)
    small, large = tied[above[tied] < _LARGE], tied[above[tied] >= _LARGE]
    a, g = above[small], run[small]
    gain[small] = 1.0 - a * (harmonic_difference(a, g) / g)
    a, g = above[large], run[large]
    u, v = 1.0 / a, 1.0 / (a + g)
    gain[large] = _one_minus_log1p_ratio(g * u) + v * (0.5 - _tail(u, v))
    return gain


def mean_log_rank(above: np.ndarray, run: np.ndarray) -> np.ndarray:
    """Mean of ln(above + q) over q = 1..run, which is (ln Γ(above + run + 1) - ln Γ(above + 1)) / run."""
    mean = np.log(above + 1.0)
    tied = np.flatnonzero(run != 1.0)
    a, g = above[tied], run[tied]
    small = np.flatnonzero(a < _LARGE)
    large = a.copy()
    large[small] += _LARGE
    u, v = 1.0 / large, 1.0 / (large + g)
    log = np.log1p(g * u)
    value = np.log(large) + log / (g * u) + log - 1.0 + log / (2.0 * g)
    squares = u * u + u * v + v * v
    value -= u * v * (1.0 / 12.0 - squares / 360.0 + (squares * squares - u * v * (u + v) ** 2) / 1260.0)
    for j in range(1, _LARGE + 1):
        value[small] -= np.log1p(g[small] / (a[small] + j)) / g[small]
    mean[tied] = value
    return mean


def _tail(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The quotient of the series B_2k / 2k x^-2k between 1/v and 1/u, whose first terms are (u + v) / 12."""
    uu, vv = u * u, v * v
    inner = (
        1.0 / 12.0 - (uu + vv) / 120.0 + (uu * uu + uu * vv + vv * vv) / 252.0 - (uu + vv) * (uu * uu + vv * vv) / 240.0
    )
    return np.asarray((u + v) * inner)


def _one_minus_log1p_ratio(t: np.ndarray) -> np.ndarray:
    """1 - log1p(t) / t without cancellation for small t."""
    series = np.zeros_like(t)
    for k in range(17, 0, -1):
        series = t * (1.0 / (k + 1) - series)
    with np.errstate(invalid="ignore"):
        return np.where(t < 0.1, series, 1.0 - np.log1p(t) / t)
