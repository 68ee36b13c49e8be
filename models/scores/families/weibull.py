"""Maximum likelihood of a two-parameter Weibull distribution."""

import numpy as np

from models.scores.moments import Float

MAX_SHAPE = 1e3
"""A steeper tail than this is a step for every purpose; it also bounds the fit of nearly equal distances."""


def fit_weibull(x: Float) -> tuple[float, float]:
    """(shape, scale) of positive values, location zero.

    The shape solves Σ xᵏ ln x / Σ xᵏ − 1/k = mean ln x, whose left side rises with k: bisection in ln k.
    """
    peak = float(np.max(x))
    logs = np.log(x / peak)
    mean = float(np.mean(logs))
    low, high = np.log(1e-3), np.log(MAX_SHAPE)
    for _ in range(80):
        middle = (low + high) / 2
        shape = float(np.exp(middle))
        weights = np.exp(shape * logs)
        if float(np.sum(weights * logs) / np.sum(weights)) - 1.0 / shape < mean:
            low = middle
        else:
            high = middle
    shape = float(np.exp((low + high) / 2))
    return shape, peak * float(np.mean(np.exp(shape * logs))) ** (1.0 / shape)
