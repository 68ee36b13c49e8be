"""The definition of every score: the array language executed by numpy in float64."""

import numpy as np

from .namespace import Array, Namespace


class NumpyNamespace(Namespace):
    """Every operation in float64; `single` is the identity, so a bank is compared exactly."""

    def constant(self, value: np.ndarray | float) -> Array:
        array = np.asarray(value)
        return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array

    def single(self, x: Array) -> Array:
        return x

    def double(self, x: Array) -> Array:
        return x

    def exp(self, x: Array) -> Array:
        return np.exp(x)

    def log(self, x: Array) -> Array:
        return np.log(x)

    def sqrt(self, x: Array) -> Array:
        return np.sqrt(x)

    def abs(self, x: Array) -> Array:
        return np.abs(x)

    def power(self, x: Array, exponent: Array | float) -> Array:
        return np.power(x, exponent)

    def minimum(self, x: Array, y: Array | float) -> Array:
        return np.minimum(x, y)

    def maximum(self, x: Array, y: Array | float) -> Array:
        return np.maximum(x, y)

    def equal(self, x: Array, y: Array | float) -> Array:
        return np.equal(x, y)

    def greater_equal(self, x: Array, y: Array | float) -> Array:
        return np.greater_equal(x, y)

    def where(self, condition: Array, x: Array | float, y: Array | float) -> Array:
        return np.where(condition, x, y)

    def max(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.max(x, axis=-1, keepdims=keepdims)

    def min(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.min(x, axis=-1, keepdims=keepdims)

    def sum(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.sum(x, axis=-1, keepdims=keepdims)

    def mean(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.mean(x, axis=-1, keepdims=keepdims)

    def logsumexp(self, x: Array, *, keepdims: bool = False) -> Array:
        peak = np.max(x, axis=-1, keepdims=True)
        peak = np.where(np.isfinite(peak), peak, 0.0)
        with np.errstate(divide="ignore"):
            total = np.log(np.sum(np.exp(x - peak), axis=-1, keepdims=True)) + peak
        return total if keepdims else total[..., 0]

    def sum_squares(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.sum(np.square(x), axis=-1, keepdims=keepdims)

    def norm1(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.sum(np.abs(x), axis=-1, keepdims=keepdims)

    def norm(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.sqrt(np.sum(np.square(x), axis=-1, keepdims=keepdims))

    def softmax(self, x: Array) -> Array:
        weights = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return weights / np.sum(weights, axis=-1, keepdims=True)

    def argmax(self, x: Array, *, keepdims: bool = False) -> Array:
        return np.argmax(x, axis=-1, keepdims=keepdims)

    def top(self, x: Array, k: int) -> Array:
        largest = np.partition(x, x.shape[-1] - k, axis=-1)[..., x.shape[-1] - k :]
        return np.sort(largest, axis=-1)[..., ::-1]

    def top_indices(self, x: Array, k: int) -> Array:
        candidates = np.sort(np.argpartition(x, x.shape[-1] - k, axis=-1)[..., x.shape[-1] - k :], axis=-1)
        order = np.argsort(-np.take_along_axis(x, candidates, axis=-1), axis=-1, kind="stable")
        return np.take_along_axis(candidates, order, axis=-1)

    def column(self, x: Array, index: int) -> Array:
        return x[..., index]

    def take(self, table: Array, rows: Array) -> Array:
        return table[rows]

    def take_along(self, x: Array, columns: Array) -> Array:
        return np.take_along_axis(x, columns, axis=-1)

    def batch_dot(self, tables: Array, x: Array) -> Array:
        return (tables @ x[..., None])[..., 0]

    def class_dot(self, tables: Array, x: Array) -> Array:
        return (x @ tables.reshape(-1, x.shape[1]).T).reshape(len(x), *tables.shape[:2])

    def batch_combine(self, tables: Array, weights: Array) -> Array:
        return (weights[:, None, :] @ tables)[:, 0]

    def own_projection(self, tables: Array, label: Array, x: Array) -> Array:
        projected = np.empty_like(x)
        for c in np.unique(label):
            rows = label == c
            projected[rows] = x[rows] @ tables[c].T @ tables[c]
        return projected

    def matmul_t(self, x: Array, table: Array) -> Array:
        return x @ table.T
