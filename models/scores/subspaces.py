"""Principal subspaces of the features: of all rows, and of each class."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.errors import ScoreError

from .fitdata import FitData
from .moments import Float, Moments, class_moments, components_for, feature_moments, principal_directions
from .namespace import Array, Namespace

SCATTER_BYTES = 512 * 2**20
"""Memory for rows or covariances of classes; what does not fit takes another pass."""

BASES_BYTES = 2**30
"""Largest set of class bases that goes into a graph."""


@dataclass(frozen=True)
class GlobalSubspace:
    """Mean [D], and k orthonormal principal directions as rows [k, D] next to those left out [D − k, D]."""

    mean: Float
    basis: Float
    complement: Float


@dataclass(frozen=True)
class ClassSubspaces:
    """Class means [C, D], principal directions as rows [C, r, D] (zero rows fill up), and what the fit noted."""

    means: Float
    bases: Float
    notes: tuple[str, ...]


def fit_global(data: FitData, variance: float, dim: int | None = None) -> GlobalSubspace:
    """The fewest directions with this share of the variance, or exactly `dim` of them."""
    moments = feature_moments(data)
    values, directions = principal_directions(moments.covariance)
    size = components_for(values, variance) if dim is None else dim
    if not 1 <= size <= data.dim:
        raise ScoreError(f"The parameter dim must be from 1 to {data.dim} for {data.dim} features, got {size}.")
    rows = np.ascontiguousarray(directions.T)
    return GlobalSubspace(moments.mean, rows[:size], rows[size:])


def fit_classes(data: FitData, variance: float, dim: int | None = None) -> ClassSubspaces:
    """A subspace per class by label; a class with fewer than two rows takes the subspace of all rows."""
    if not data.has_labels:
        raise ScoreError("Class subspaces need labels, which the fit data lacks; use the global projection.")
    key = ("class_subspaces", variance, dim)
    return data.memo(key, lambda: _fit_classes(data, variance, dim))


def _fit_classes(data: FitData, variance: float, dim: int | None) -> ClassSubspaces:
    counts = class_moments(data).counts
    everything = fit_global(data, variance, dim)
    means, bases = [], []
    for classes in _passes(counts, data.dim):
        for label, (mean, values, directions) in zip(classes, _spectra(data, counts, classes), strict=True):
            # n rows span at most n − 1 directions; the others are rounding.
            size = min(components_for(values, variance) if dim is None else dim, int(counts[label]) - 1, data.dim)
            means.append(mean if size > 0 else everything.mean)
            bases.append(directions[:size] if size > 0 else everything.basis)
    few = int(np.sum(counts < 2))
    notes = (f"{few} classes have fewer than two fit rows and take the global projection.",) if few else ()
    return ClassSubspaces(np.stack(means), _stack(bases, data), notes)


def _passes(counts: np.ndarray, dim: int) -> Iterator[range]:
    """Runs of classes whose rows or covariances fit into memory together."""
    start, used = 0, 0
    for label, count in enumerate(counts):
        size = 8 * dim * min(int(count), dim)
        if used + size > SCATTER_BYTES and label > start:
            yield range(start, label)
            start, used = label, 0
        used += size
    yield range(start, len(counts))


def _spectra(data: FitData, counts: np.ndarray, classes: range) -> Iterator[tuple[Float, Float, Float]]:
    """Mean, variances and principal directions (as rows) of each class; few rows are kept, many become a covariance."""
    rows: dict[int, list[Float]] = {label: [] for label in classes if counts[label] <= data.dim}
    moments = {label: Moments.empty(data.dim) for label in classes if label not in rows}
    for batch in data.batches():
        for label in np.unique(batch.y):
            if label in rows:
                rows[label].append(batch.h[batch.y == label])
            elif label in moments:
                moments[label].add(batch.h[batch.y == label])
    for label in classes:
        if label in moments:
            values, directions = principal_directions(moments[label].covariance)
            yield moments[label].mean, values, directions.T
        else:
            yield _spectrum(np.concatenate([np.empty((0, data.dim)), *rows[label]]))


def _spectrum(rows: Float) -> tuple[Float, Float, Float]:
    mean = rows.mean(axis=0) if len(rows) else np.zeros(rows.shape[1])
    _, scale, directions = np.linalg.svd(rows - mean, full_matrices=False)
    return mean, scale**2 / max(len(rows), 1), directions


def _stack(bases: list[Float], data: FitData) -> Float:
    width = max(len(basis) for basis in bases)
    if 8 * len(bases) * width * data.dim > BASES_BYTES:
        raise ScoreError(
            f"{len(bases)} class subspaces of {width} directions in {data.dim} features would take more than "
            f"{BASES_BYTES // 2**20} MB in the graph: lower `variance` or set `dim`."
        )
    stacked = np.zeros((len(bases), width, data.dim))
    for stack, basis in zip(stacked, bases, strict=True):
        stack[: len(basis)] = basis
    return stacked


def project_to_class(xp: Namespace, h: Array, means: Array, bases: Array, label: Array) -> tuple[Array, Array]:
    """(h − μ_c, its projection P_c P_cᵀ(h − μ_c)) for each row's own class c."""
    centred = h - xp.take(means, label)
    return centred, xp.own_projection(bases, label, centred)
