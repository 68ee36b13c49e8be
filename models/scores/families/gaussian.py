"""Distances under Gaussian class-conditional features: Mahalanobis and its relative form."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.moments import Float, class_moments, feature_moments
from models.scores.namespace import Array, Namespace

from .distances import squared_distances


class GaussianParams(ScoreParams):
    """Shrinkage of the covariance towards a multiple of the identity."""

    shrinkage: Annotated[float, Field(ge=0, le=1)] | Literal["oas"] = Field(
        "oas",
        description="weight of the identity, or oas to estimate it",
        json_schema_extra=tune(["oas", 1e-4, 1e-2, 0.1, 0.5]),
    )


class Mahalanobis(Score):
    """−min_k (h − μ_k)ᵀ Σ⁻¹ (h − μ_k), Σ shared by the classes (Lee et al. 2018)."""

    id = "mahalanobis"
    title = "Mahalanobis distance"
    paper = "Lee et al. 2018, A Simple Unified Framework for Detecting Out-of-Distribution Samples"
    needs = require("features", "fit", "labels")
    cost = "medium"
    role = "s_ood"
    Params = GaussianParams
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: GaussianParams) -> Theta:
        stats = class_moments(data)
        present = stats.present
        if not present.any():
            raise ScoreError(f"{self.id} needs class means, and no fit row has a label in 0…{data.n_classes - 1}.")
        centre = feature_moments(data).mean
        if not np.trace(stats.within) > 0:
            raise ScoreError(f"{self.id} needs the spread within classes, and the features do not vary within any.")
        whiten, share = whitening(stats.within, int(stats.counts.sum()), params.shrinkage)
        theta = {
            "whiten": whiten,
            "centre": whiten @ centre,
            "means": (stats.means[present] - centre) @ whiten.T,
        }
        return Theta(theta, _notes(self.id, data, present), {"shrinkage": share})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: GaussianParams) -> Array:
        return -nearest_class(xp, x.h, theta)


class RelativeMahalanobis(Mahalanobis):
    """−min_k [d_k(h) − d_0(h)], d_0 the distance under one Gaussian over all classes (Ren et al. 2021)."""

    id = "relative_mahalanobis"
    title = "relative Mahalanobis distance"
    paper = "Ren et al. 2021, A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection"

    def fit(self, data: FitData, params: GaussianParams) -> Theta:
        theta = super().fit(data, params)
        if np.sum(class_moments(data).present) < 2:
            raise ScoreError(f"{self.id} compares a class with all classes, and the fit data has only one.")
        background = feature_moments(data)
        whiten, _ = whitening(background.covariance, background.count, params.shrinkage)
        arrays = {**theta, "background": whiten, "background_centre": whiten @ background.mean}
        return Theta(arrays, theta.notes)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: GaussianParams) -> Array:
        background = xp.sum_squares(xp.matmul_t(x.h, theta["background"]) - theta["background_centre"])
        return background - nearest_class(xp, x.h, theta)


def nearest_class(xp: Namespace, h: Array, theta: Mapping[str, Array]) -> Array:
    """min_k of the squared distances, Euclidean in whitened coordinates."""
    whitened = xp.matmul_t(h, theta["whiten"]) - theta["centre"]
    return xp.min(squared_distances(xp, whitened, theta["means"]))


def whitening(covariance: Float, count: int, shrinkage: float | str) -> tuple[Float, float]:
    """A with AᵀA = Σ⁻¹ for the shrunk Σ, and the shrinkage used."""
    dim = len(covariance)
    scale = float(np.trace(covariance)) / dim
    share = oas(covariance, count) if shrinkage == "oas" else float(shrinkage)
    values, vectors = np.linalg.eigh((1 - share) * covariance + share * scale * np.eye(dim))
    # Directions in which the fit data does not move at all would otherwise decide every distance.
    values = np.maximum(values, 1e-10 * values[-1])
    return np.ascontiguousarray((vectors / np.sqrt(values)).T), share


def oas(covariance: Float, count: int) -> float:
    """Oracle-approximating shrinkage (Chen et al. 2010): needs only Σ and the count, so it streams."""
    dim = len(covariance)
    alpha = float(np.mean(covariance**2))
    mean_squared = (float(np.trace(covariance)) / dim) ** 2
    excess = (count + 1.0) * (alpha - mean_squared / dim)
    return 1.0 if excess <= 0 else min((alpha + mean_squared) / excess, 1.0)


def _notes(id: str, data: FitData, present: np.ndarray) -> tuple[str, ...]:
    missing = int(np.sum(~present))
    return (f"{id}: {missing} of {data.n_classes} classes have no fit row and no mean.",) if missing else ()
