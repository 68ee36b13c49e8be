"""The small array language in which every score is written once.

A formula receives a namespace `xp` and arrays that support `+ - * / @`, and runs unchanged in two places: numpy
executes it in float64 (fitting, offline scoring, the oracle of the tests), and the ONNX namespace emits it as nodes.
Reductions work over the last axis, because every signal has one row per sample.
"""

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A numpy array or an ONNX value: whatever the namespace at hand computes with."""

TINY = 1e-300
"""Smallest norm a formula divides by, so that a zero vector scores 0 and not NaN."""

MASKED = -1e300
"""What stands in the place of a logit that does not count. Not −∞: ONNX Runtime's log-sum-exp starts from the first
entry and takes an infinite one for 0, so that a row of logits below −745 behind it would vanish."""

LOG_QUARTER = float(np.log(0.25))


class Namespace(ABC):
    """Primitive operations; the formulas above them stand once, below."""

    @abstractmethod
    def constant(self, value: np.ndarray | float) -> Array:
        """A fitted array or a number as an operand."""

    @abstractmethod
    def single(self, x: Array) -> Array:
        """Float32 in the graph, for banks whose product is too slow in float64; the numpy definition stays exact."""

    @abstractmethod
    def double(self, x: Array) -> Array:
        """Back to float64 after `single`."""

    @abstractmethod
    def exp(self, x: Array) -> Array: ...

    @abstractmethod
    def log(self, x: Array) -> Array: ...

    @abstractmethod
    def sqrt(self, x: Array) -> Array: ...

    @abstractmethod
    def abs(self, x: Array) -> Array: ...

    @abstractmethod
    def power(self, x: Array, exponent: Array | float) -> Array: ...

    @abstractmethod
    def minimum(self, x: Array, y: Array | float) -> Array: ...

    @abstractmethod
    def maximum(self, x: Array, y: Array | float) -> Array: ...

    @abstractmethod
    def equal(self, x: Array, y: Array | float) -> Array: ...

    @abstractmethod
    def greater_equal(self, x: Array, y: Array | float) -> Array: ...

    @abstractmethod
    def where(self, condition: Array, x: Array | float, y: Array | float) -> Array: ...

    @abstractmethod
    def max(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def min(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def sum(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def mean(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def logsumexp(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def sum_squares(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def norm1(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def norm(self, x: Array, *, keepdims: bool = False) -> Array:
        """Euclidean norm of each row."""

    @abstractmethod
    def softmax(self, x: Array) -> Array: ...

    @abstractmethod
    def argmax(self, x: Array, *, keepdims: bool = False) -> Array: ...

    @abstractmethod
    def top(self, x: Array, k: int) -> Array:
        """The k largest values of each row, largest first."""

    @abstractmethod
    def top_indices(self, x: Array, k: int) -> Array:
        """Where the k largest values of each row stand, largest first and of equal ones the first."""

    @abstractmethod
    def column(self, x: Array, index: int) -> Array:
        """Column `index` of a matrix, as a vector."""

    @abstractmethod
    def take(self, table: Array, rows: Array) -> Array:
        """The rows of a table that an index vector names."""

    @abstractmethod
    def take_along(self, x: Array, columns: Array) -> Array:
        """Entries of each row at that row's own column indices."""

    @abstractmethod
    def batch_dot(self, tables: Array, x: Array) -> Array:
        """[B, r] products of each row's own table [B, r, D] with that row [B, D]."""

    @abstractmethod
    def class_dot(self, tables: Array, x: Array) -> Array:
        """[B, C, r] products of every class's table [C, r, D] with every row [B, D]."""

    @abstractmethod
    def batch_combine(self, tables: Array, weights: Array) -> Array:
        """[B, D] sums of each row's own table rows [B, r, D], weighted [B, r]."""

    @abstractmethod
    def own_projection(self, tables: Array, label: Array, x: Array) -> Array:
        """[B, D] of P_c P_cᵀ x for each row's own class c: its orthonormal rows of the tables [C, r, D]."""

    @abstractmethod
    def matmul_t(self, x: Array, table: Array) -> Array:
        """x · tableᵀ, for a table that keeps one row per class, neighbour or direction."""

    def affine(self, x: Array, weight: Array, bias: Array) -> Array:
        """x · weightᵀ + bias, the shape of a classifier's head."""
        return self.matmul_t(x, weight) + bias

    def log1p(self, x: Array) -> Array:
        """log(1 + x) for x ≥ 0 to full relative precision, from `log` alone (Goldberg 1991, Theorem 4)."""
        u = x + 1.0
        exact = self.equal(u, 1.0)
        return self.where(exact, x, self.log(u) * x / self.where(exact, 1.0, u - 1.0))

    def one_minus_exp(self, x: Array) -> Array:
        """1 − exp(x) for x ≤ 0 to full relative precision, by the same device as `log1p`."""
        u = self.exp(x)
        exact = self.equal(u, 1.0)
        # Below log ¼ nothing cancels: both sides of the correction are clamped there and it becomes 1.
        correction = self.maximum(x, LOG_QUARTER) / self.log(self.where(exact, 0.5, self.maximum(u, 0.25)))
        return self.where(exact, -x, (1.0 - u) * correction)

    def softplus(self, x: Array) -> Array:
        """log(1 + exp(x)) without overflow."""
        return self.maximum(x, 0.0) + self.log1p(self.exp(-self.abs(x)))

    def unit(self, x: Array) -> Array:
        """Rows scaled to length one; a zero row stays zero."""
        return x / self.maximum(self.norm(x, keepdims=True), TINY)

    def energy(self, z: Array, temperature: float = 1.0) -> Array:
        """T · log Σ exp(z/T), the negated free energy of Liu et al. 2020."""
        if temperature == 1.0:
            return self.logsumexp(z)
        return self.logsumexp(z / temperature) * temperature

    def is_top(self, z: Array, n_classes: int) -> Array:
        """Mask of each row's top class; of tied classes only the first, so the others keep the tie."""
        return self.equal(self.constant(np.arange(n_classes)), self.argmax(z, keepdims=True))

    def others(self, z: Array, n_classes: int) -> Array:
        """The logits without each row's top class, whose place holds a number below all of them."""
        return self.where(self.is_top(z, n_classes), MASKED, z)
