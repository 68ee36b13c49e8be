"""Scores of the principal subspace: PCA reconstruction error and its kernel form."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitBatch, FitData
from models.scores.namespace import TINY, Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace
from models.scores.subspaces import fit_classes, fit_global, project_to_class

from .distances import squared_distances


class PcaParams(ScoreParams):
    """The subspace, and of what."""

    variance: float = Field(
        0.95,
        gt=0,
        le=1,
        description="share of variance kept",
        json_schema_extra=tune([0.5, 0.7, 0.8, 0.9, 0.95, 0.99]),
    )
    dim: int | None = Field(None, ge=1, description="number of directions, instead of `variance`")
    subspace: Literal["global", "class", "class_pred"] = Field(
        "global", description="one subspace, the nearest of the classes' own, or the predicted class's own"
    )


class KpcaParams(PcaParams):
    """The kernel and its landmarks."""

    sigma: float | None = Field(None, gt=0, description="kernel width; √ of the median of 1 − cos when not given")
    landmarks: int = Field(
        256, ge=2, description="fit rows of the Nyström map", json_schema_extra=tune([128, 256, 512])
    )
    seed: int = Field(0, ge=0, description="seed of the landmarks")


class _Reconstruction(Score):
    """Distance from an embedding of h to its projection on principal subspaces of the embedded fit data."""

    needs = require("logits", "features", "fit")
    role = "s_ood"
    projections = frozenset({"global", "class", "class_pred"})
    project_as = "subspace"

    @abstractmethod
    def embed(self, xp: Namespace, h: Array, theta: Mapping[str, Array], params: Any) -> Array:
        """What is projected."""

    @abstractmethod
    def fit_embedding(self, data: FitData, params: Any) -> Theta:
        """Statistics of the embedding."""

    def fit(self, data: FitData, params: PcaParams) -> Theta:
        own = self.fit_embedding(data, params)
        embedded = data.map(lambda batch: self._embedded(batch, own, params), None) if own else data
        if params.subspace == "global":
            space = fit_global(embedded, params.variance, params.dim)
            self._check_leaves_some(len(space.basis), embedded.dim)
            theta = {"complement": space.complement, "offset": space.complement @ space.mean}
            return Theta({**own, **theta}, own.notes, {**own.settled, "dim": len(space.basis)})
        classes = fit_classes(embedded, params.variance, params.dim)
        self._check_leaves_some(int(classes.bases.any(axis=2).sum(axis=1).max()), embedded.dim)
        theta = {"means": classes.means, "bases": classes.bases}
        if params.subspace == "class":  # far from the origin squared distances would cancel
            centre = classes.means.mean(axis=0)
            theta |= {"means": classes.means - centre, "centre": centre}
        return Theta({**own, **theta}, (*own.notes, *classes.notes), own.settled)

    def _check_leaves_some(self, kept: int, dim: int) -> None:
        """What lies in the subspace has no error: were it everything, every row would score alike."""
        if kept >= dim:
            raise ScoreError(
                f"{self.id} measures what a subspace leaves out, and that of the fit data takes all {dim} directions; "
                "lower variance or dim."
            )

    def _embedded(self, batch: FitBatch, theta: Theta, params: PcaParams) -> FitBatch:
        return FitBatch(batch.logits, self.embed(NumpyNamespace(), batch.h, theta, params), batch.labels)

    def error(self, xp: Namespace, x: Inputs, v: Array, theta: Mapping[str, Array], params: PcaParams) -> Array:
        """‖v − v̂‖ for the embedding v of a row."""
        if params.subspace == "global":
            return xp.norm(xp.matmul_t(v, theta["complement"]) - theta["offset"])
        if params.subspace == "class_pred":
            centred, projected = project_to_class(xp, v, theta["means"], theta["bases"], xp.argmax(x.z))
            return xp.norm(centred - projected)
        return xp.min(self._class_errors(xp, v - theta["centre"], theta))

    def _class_errors(self, xp: Namespace, v: Array, theta: Mapping[str, Array]) -> Array:
        """[B, C] of √(‖v − μ_c‖² − ‖P_cᵀ(v − μ_c)‖²)."""
        means, bases = theta["means"], theta["bases"]
        along = xp.class_dot(bases, v) - xp.batch_dot(bases, means)
        return xp.sqrt(xp.maximum(squared_distances(xp, v, means) - xp.sum_squares(along), 0.0))


class Pca(_Reconstruction):
    """−‖h − ĥ‖ / ‖h‖, ĥ the projection on the principal subspace (Guan et al. 2023)."""

    id = "pca"
    title = "PCA reconstruction error"
    paper = "Guan et al. 2023, Revisit PCA-based Technique for Out-of-Distribution Detection"
    cost = "low"
    Params = PcaParams

    def fit_embedding(self, data: FitData, params: PcaParams) -> Theta:
        return Theta()

    def embed(self, xp: Namespace, h: Array, theta: Mapping[str, Array], params: PcaParams) -> Array:
        return h

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: PcaParams) -> Array:
        return -(self.error(xp, x, x.h, theta, params) / xp.maximum(xp.norm(x.h), TINY))


class Kpca(_Reconstruction):
    """−‖ψ − ψ̂‖² / ‖ψ‖ for Nyström features ψ of the kernel exp(−(1 − cos)/σ²) (Fang et al. 2025)."""

    id = "kpca"
    title = "kernel PCA reconstruction error"
    paper = "Fang et al. 2025, Kernel PCA for Out-of-Distribution Detection"
    cost = "medium"
    Params = KpcaParams

    def fit_embedding(self, data: FitData, params: KpcaParams) -> Theta:
        landmarks = NumpyNamespace().unit(data.sample(params.landmarks, params.seed).h)
        distances = 1.0 - landmarks @ landmarks.T
        sigma = params.sigma or float(np.sqrt(max(float(np.median(distances)), 1e-6)))
        values, vectors = np.linalg.eigh(np.exp(-distances / sigma**2))
        keep = values > 1e-10 * values[-1]
        root = np.ascontiguousarray((vectors[:, keep] / np.sqrt(values[keep])).T)
        theta = {"landmarks": landmarks, "root": root, "inverse_width": np.asarray(sigma**-2)}
        return Theta(theta, settled={"sigma": sigma})

    def embed(self, xp: Namespace, h: Array, theta: Mapping[str, Array], params: KpcaParams) -> Array:
        cosine = xp.matmul_t(xp.unit(h), theta["landmarks"])
        return xp.matmul_t(xp.exp((cosine - 1.0) * theta["inverse_width"]), theta["root"])

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: KpcaParams) -> Array:
        psi = self.embed(xp, x.h, theta, params)
        error = self.error(xp, x, psi, theta, params)
        return -(error * error / xp.maximum(xp.norm(psi), TINY))
