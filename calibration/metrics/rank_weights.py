"""Bias and mean squared error of the rank weights behind the AURC estimators (Zhou et al. 2025, section 3.6).

Population AURC weighs the loss at the score's quantile β with α = -ln(1 - β). From n rows, the row of rank r (1 is the
lowest score) gets an estimate of α that depends on r and n alone.
"""

from typing import Literal

import numpy as np

from calibration.errors import TableError
from calibration.metrics.ordering import dot

WeightEstimator = Literal["plugin", "plugin_log", "sele"]


def rank_weights(n: int, estimator: WeightEstimator = "plugin") -> np.ndarray:
    """The weight of every rank from 1 to n: Eq. 13, Eq. 18, or r/n."""
    rank = np.arange(1, _positive(n) + 1)
    if estimator == "plugin":
        return np.asarray(np.cumsum(1.0 / (n - rank + 1.0)))
    if estimator == "plugin_log":
        return np.asarray(-np.log1p(-rank / (n + 1.0)))
    if estimator == "sele":
        return rank / float(n)
    raise TableError(f"There are no rank weights {estimator!r}; choose plugin, plugin_log or sele.")


def rank_weight_bias(n: int, beta: float, estimator: WeightEstimator = "plugin") -> float:
    """The bias of a weight at the population quantile `beta`, 0 <= beta < 1 (Propositions 3.3, 3.4 and A.2)."""
    if not 0.0 <= beta < 1.0:
        raise TableError(f"The quantile must be at least 0 and below 1, not {beta!r}.")
    from scipy.stats import binom

    lower = np.arange(_positive(n))  # rows below: rank - 1 is binomial
    return dot(binom.pmf(lower, n - 1, beta), rank_weights(n, estimator)) + float(np.log1p(-beta))


def rank_weight_mse(n: int, rank: int, estimator: WeightEstimator = "plugin") -> float:
    """The mean squared error of the weight of a rank over the quantiles it may stand for (Propositions 3.5 and A.3).

    The quantile of rank r is Beta(r, n + 1 - r); α has the mean H(n) - H(n - r) and the variance below.
    """
    if not 1 <= rank <= _positive(n):
        raise TableError(f"The rank must lie between 1 and {n}, not {rank!r}.")
    from scipy.special import polygamma

    variance = float(polygamma(1, n + 1 - rank) - polygamma(1, n + 1))
    offset = float(rank_weights(n, estimator)[rank - 1] - rank_weights(n, "plugin")[rank - 1])
    return variance + offset**2


def _positive(n: int) -> int:
    if n < 1:
        raise TableError(f"The number of rows must be at least 1, not {n!r}.")
    return n
