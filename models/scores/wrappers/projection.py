"""Projection filtering: features seen through the principal subspace of all rows, or of a class."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import Classwise, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.moments import Float
from models.scores.namespace import Array, Namespace
from models.scores.subspaces import fit_classes, fit_global, project_to_class
from models.signals import Head

from .base import Wrapper


class ProjectParams(ScoreParams):
    """Which projection, and how much variance it keeps."""

    mode: Literal["global", "class", "class_pred", "class_avg"] = Field(
        "global", description="one subspace; each class's own; the predicted class's; the mean of the classes'"
    )
    variance: float = Field(
        0.9, gt=0, le=1, description="share of variance kept", json_schema_extra=tune([0.8, 0.9, 0.95, 0.99])
    )
    dim: int | None = Field(None, ge=1, description="number of directions, instead of `variance`")


class Project(Wrapper):
    """The projections of Claros Olivares & Brockmeier 2025 (section 3.2, appendix A.3, Table 3).

    ĥ = P Pᵀ(h − μ) + μ, and logits anew from ĥ. Where ĥ is linear in h the new logits are one affine map.
    """

    id = "project"
    title = "projection filtering"
    paper = "Claros Olivares & Brockmeier 2025, A Systematic Analysis of Out-of-Distribution Detection"
    needs = require("features", "fit")
    Params = ProjectParams
    order = 0

    def check(self, score: Score, params: ProjectParams, data: FitData) -> None:
        if params.mode not in score.projections:
            defined = ", ".join(sorted(score.projections)) or "none"
            raise ScoreError(
                f"The projection {params.mode!r} is not defined for {score.id}: defined for it are {defined}."
            )
        if "logits" in score.needs and data.head is None:
            raise ScoreError(f"{score.id} after a projection needs the classifier's head, to make logits anew.")

    def fit(self, data: FitData, params: ProjectParams, validation: FitData | None) -> tuple[Theta, ProjectParams]:
        if params.mode == "global":
            space = fit_global(data, params.variance, params.dim)
            offset = space.mean - space.basis.T @ (space.basis @ space.mean)
            arrays = {"basis": space.basis, "basis_t": np.ascontiguousarray(space.basis.T), "offset": offset}
            arrays |= _logits_of(data.head, space.basis, offset)
            return Theta(arrays), params.model_copy(update={"dim": len(space.basis)})
        classes = fit_classes(data, params.variance, params.dim)
        arrays = _CLASS_ARRAYS[params.mode](classes.means, classes.bases, data.head)
        return Theta(arrays, classes.notes), params

    def apply(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: ProjectParams) -> Inputs:
        h, z = _APPLY[params.mode](xp, x, theta)
        if "weight" not in theta:  # without a head there are no logits to make anew, and `check` has seen to it
            z = lambda: x.z  # noqa: E731
        classwise = _ClasswiseProjection(xp, x, theta) if params.mode == "class" else None
        return Inputs(z, h, x.n_classes, x.dim, classwise)


def _global(xp: Namespace, x: Inputs, theta: Mapping[str, Array]) -> tuple[Array, Array]:
    """ĥ = P Pᵀh + (μ − P Pᵀμ), and its logits from the k coordinates alone."""
    return (
        lambda: xp.affine(xp.matmul_t(x.h, theta["basis"]), theta["basis_t"], theta["offset"]),
        lambda: xp.affine(xp.matmul_t(x.h, theta["basis"]), theta["weight"], theta["bias"]),
    )


def _class(xp: Namespace, x: Inputs, theta: Mapping[str, Array]) -> tuple[Array, Array]:
    """Logits ĝ_c = w_c · ĥᶜ + b_c, linear in h; the features have one projection per class and stay as they are."""
    return (lambda: x.h, lambda: xp.affine(x.h, theta["weight"], theta["bias"]))


def _class_pred(xp: Namespace, x: Inputs, theta: Mapping[str, Array]) -> tuple[Array, Array]:
    """ĥ of the class that the original logits predict."""

    def features() -> Array:
        label = xp.argmax(x.z)
        _, projected = project_to_class(xp, x.h, theta["means"], theta["bases"], label)
        return projected + xp.take(theta["means"], label)

    return (features, lambda: xp.affine(features(), theta["weight"], theta["bias"]))


def _class_avg(xp: Namespace, x: Inputs, theta: Mapping[str, Array]) -> tuple[Array, Array]:
    """ĥ = (1/C) Σ_c ĥᶜ, linear in h."""
    return (
        lambda: xp.affine(x.h, theta["projector"], theta["offset"]),
        lambda: xp.affine(x.h, theta["weight"], theta["bias"]),
    )


_APPLY = {"global": _global, "class": _class, "class_pred": _class_pred, "class_avg": _class_avg}


def _logits_of(head: Head | None, basis: Float, offset: Float) -> dict[str, Float]:
    if head is None:
        return {}
    return {"weight": head.weight @ basis.T, "bias": head.weight @ offset + head.bias}


def _class_arrays(means: Float, bases: Float, head: Head | None) -> dict[str, Float]:
    """w_c · ĥᶜ + b_c = (P_c P_cᵀ w_c) · h + w_c · (μ_c − P_c P_cᵀ μ_c) + b_c."""
    arrays = {"bases": bases, "offsets": _class_offsets(means, bases)}
    if head is not None:
        weight = np.stack([basis.T @ (basis @ w) for basis, w in zip(bases, head.weight, strict=True)])
        rest = np.sum(head.weight * means, axis=1) - np.sum(weight * means, axis=1)
        arrays |= {"weight": weight, "bias": rest + head.bias}
    return arrays


def _class_offsets(means: Float, bases: Float) -> Float:
    """μ_c − P_c P_cᵀ μ_c, exactly zero where only rounding is left: a cosine would take it for a direction."""
    offsets = np.stack([mean - basis.T @ (basis @ mean) for mean, basis in zip(means, bases, strict=True)])
    size = np.linalg.norm(offsets, axis=1, keepdims=True)
    return np.where(size > 1e-12 * np.linalg.norm(means, axis=1, keepdims=True), offsets, 0.0)


def _class_pred_arrays(means: Float, bases: Float, head: Head | None) -> dict[str, Float]:
    arrays = {"means": means, "bases": bases}
    return arrays if head is None else arrays | {"weight": head.weight, "bias": head.bias}


def _class_avg_arrays(means: Float, bases: Float, head: Head | None) -> dict[str, Float]:
    projector = np.zeros((means.shape[1], means.shape[1]))
    offset = np.zeros(means.shape[1])
    for mean, basis in zip(means, bases, strict=True):
        projector += basis.T @ basis / len(means)
        offset += (mean - basis.T @ (basis @ mean)) / len(means)
    arrays = {"projector": projector, "offset": offset}
    return arrays | _logits_of(head, projector, offset)


_CLASS_ARRAYS = {"class": _class_arrays, "class_pred": _class_pred_arrays, "class_avg": _class_avg_arrays}


class _ClasswiseProjection(Classwise):
    """Products with ĥᶜ = P_c P_cᵀ h + o_c, with the offsets o_c, from the coordinates P_cᵀh [B, C, r]."""

    def __init__(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array]) -> None:
        self._xp, self._x, self._theta = xp, x, theta

    def dot(self, table: Array) -> Array:
        xp, bases = self._xp, self._theta["bases"]
        along = xp.class_dot(bases, self._x.h)
        return xp.sum(along * xp.batch_dot(bases, table)) + xp.sum(table * self._theta["offsets"])

    def norm(self) -> Array:
        xp = self._xp
        along = xp.class_dot(self._theta["bases"], self._x.h)
        return xp.sqrt(xp.sum_squares(along) + xp.sum_squares(self._theta["offsets"]))
