"""What rows of numbers are (logits, probabilities, …), and whether one value explains another."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

LOGITS = "logits"
PROBABILITIES = "probabilities"
LOG_PROBABILITIES = "log-probabilities"
INDEPENDENT = "independent probabilities"
ONE_PROBABILITY = "the probability of class 1"

PLAIN, HALVED, TWO_SIDED = "plain", "halved", "two_sided"

_SUM = 2e-3  # how far the sum of probabilities may be from 1; float16 needs it
_ROUNDING = {2: 2e-3, 4: 1e-5, 8: 1e-5}  # by the bytes of a number
_SMALLEST = {2: 1e-2, 4: 1e-20, 8: 1e-20}  # a float32 softmax is exact in ratio far below its absolute precision


def as_rows(value: NDArray[Any] | None) -> NDArray[Any] | None:
    """A float value as [n, classes] where it is that, up to axes of size one; a lone column stays one column."""
    if value is None or value.ndim == 0 or value.dtype.kind != "f":
        return None
    if sum(size != 1 for size in value.shape[1:]) > 1:
        return None
    return value.reshape(len(value), -1)


def form(given: NDArray[Any]) -> str:
    """The kind of numbers that rows hold."""
    inside = bool((given >= 0).all() and (given <= 1 + _SUM).all())
    wide = given.astype(np.float64)
    if given.shape[1] == 1:
        return ONE_PROBABILITY if inside else LOGITS
    if inside and np.allclose(wide.sum(1), 1, atol=_SUM):
        return PROBABILITIES
    if (wide <= _SUM).all() and np.allclose(np.exp(wide).sum(1), 1, atol=_SUM):
        return LOG_PROBABILITIES
    return INDEPENDENT if inside else LOGITS


def recipe(value: NDArray[Any], given: NDArray[Any], kind: str) -> str | None:
    """What makes logits of `value` such that they explain the given numbers, or None.

    `halved` and `two_sided` are for two classes with probabilities `sigmoid(∓z)`: the logits `∓z/2` have them as
    their softmax.
    """
    size = given.dtype.itemsize
    value, given = value.astype(np.float64), given.astype(np.float64)
    classes = given.shape[1]
    if kind == PROBABILITIES and classes == 2 and value.shape[1] == 1:
        return TWO_SIDED if _same(_sigmoid(value), given[:, 1:], size) else None
    if value.shape != given.shape:
        return None
    if kind == PROBABILITIES:
        if _same(_softmax(value), given, size, exact_ratio=True):
            return PLAIN
        return HALVED if classes == 2 and _same(_softmax(value / 2), given, size) else None
    if kind == LOG_PROBABILITIES:
        return PLAIN if np.allclose(_log_softmax(value), given, rtol=1e-4, atol=10 * _ROUNDING[size]) else None
    if kind in (INDEPENDENT, ONE_PROBABILITY) and _same(_sigmoid(value), given, size):
        return PLAIN if kind == INDEPENDENT else TWO_SIDED
    return None


def explains(value: NDArray[Any], given: NDArray[Any]) -> bool:
    """Whether one output is the softmax or the like of another."""
    rows = np.isfinite(value).all(1) & np.isfinite(given).all(1)
    return bool(rows.any()) and recipe(value[rows], given[rows], form(given[rows])) is not None


def equal(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Equal up to rounding."""
    if left.shape != right.shape:
        return False
    return bool(np.allclose(left, right, rtol=1e-5, atol=1e-6 * np.abs(right).max(initial=1.0)))


def _same(left: NDArray[Any], right: NDArray[Any], size: int, exact_ratio: bool = False) -> bool:
    """Probabilities that agree, also in ratio: rows near 0 and 1 must not hide a wrong scale of the logits."""
    rounding, smallest = _ROUNDING[size], _SMALLEST[size] if exact_ratio else 1e-2
    large = right > smallest
    with np.errstate(all="ignore"):
        ratio = left[large] / right[large]
    limit = min(100 * rounding, 0.05)
    return bool(np.allclose(left, right, rtol=0, atol=rounding) and np.allclose(ratio, 1, rtol=0, atol=limit))


def _softmax(z: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.exp(_log_softmax(z)))


def _log_softmax(z: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        shifted = z - z.max(1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))


def _sigmoid(z: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return np.asarray(1 / (1 + np.exp(-z)))
