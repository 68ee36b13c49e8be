"""Means and covariances in one pass over batches, in float64."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .fitdata import FitData

Float = NDArray[np.float64]


@dataclass
class Moments:
    """Count, mean and scatter Σ (x − mean)(x − mean)ᵀ, merged batch by batch (Chan, Golub & LeVeque 1979)."""

    count: int
    mean: Float
    scatter: Float

    @classmethod
    def empty(cls, dim: int) -> "Moments":
        return cls(0, np.zeros(dim), np.zeros((dim, dim)))

    def add(self, x: Float) -> None:
        """Merge a batch [n, D]."""
        if not len(x):
            return
        mean = x.mean(axis=0)
        centred = x - mean
        total = self.count + len(x)
        shift = mean - self.mean
        self.scatter += centred.T @ centred + np.outer(shift, shift) * (self.count * len(x) / total)
        self.mean = self.mean + shift * (len(x) / total)
        self.count = total

    @property
    def covariance(self) -> Float:
        """Population covariance, Σ of the papers (divided by N)."""
        return self.scatter / max(self.count, 1)

    def second_moment(self, origin: Float) -> Float:
        """E[(x − origin)(x − origin)ᵀ]."""
        shift = self.mean - origin
        return self.covariance + np.outer(shift, shift)


@dataclass
class ClassMoments:
    """Per-class counts and means [C, D], and the pooled within-class scatter [D, D]."""

    counts: NDArray[np.int64]
    means: Float
    scatter: Float

    @property
    def present(self) -> NDArray[np.bool_]:
        return self.counts > 0

    @property
    def within(self) -> Float:
        """Shared covariance of the class-conditional Gaussians (divided by N)."""
        return self.scatter / max(int(self.counts.sum()), 1)


def feature_moments(data: FitData) -> Moments:
    """Moments of the features, computed once per fit data."""
    return data.memo("moments", lambda: _feature_moments(data))


def _feature_moments(data: FitData) -> Moments:
    moments = Moments.empty(data.dim)
    for batch in data.batches():
        moments.add(batch.h)
    return moments


def class_moments(data: FitData) -> ClassMoments:
    """Class means and within-class scatter of the features by label, computed once per fit data."""
    return data.memo("class_moments", lambda: _class_moments(data))


def _class_moments(data: FitData) -> ClassMoments:
    """Merge each batch's class groups; a label outside 0…C−1 (unknown) is left out."""
    counts = np.zeros(data.n_classes, dtype=np.int64)
    means = np.zeros((data.n_classes, data.dim))
    scatter = np.zeros((data.dim, data.dim))
    for batch in data.batches():
        for label in np.unique(batch.y[(batch.y >= 0) & (batch.y < data.n_classes)]):
            rows = batch.h[batch.y == label]
            group = Moments(int(counts[label]), means[label], scatter)
            group.add(rows)
            counts[label], means[label] = group.count, group.mean
    return ClassMoments(counts, means, scatter)


def principal_directions(covariance: Float) -> tuple[Float, Float]:
    """Eigenvalues, largest first and not below zero, and their eigenvectors as columns."""
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def components_for(values: Float, variance: float) -> int:
    """How many leading eigenvalues keep at least this share of their sum (at least one)."""
    if not np.sum(values) > 0:
        return 1  # rows that do not differ have no direction to keep, and the one is arbitrary
    share = np.cumsum(values) / float(np.sum(values))
    return min(int(np.searchsorted(share, variance * (1 - 1e-12))) + 1, len(values))
