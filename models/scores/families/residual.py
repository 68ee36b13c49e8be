"""Scores of the part of the features outside the principal subspace: residual and virtual-logit matching."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.moments import Float, feature_moments, principal_directions
from models.scores.namespace import Array, Namespace
from models.signals import Head

PINV_RTOL = 1e-6
"""Singular values of the head below this share count as zero: a centred head is rank-deficient, and dividing by
them would send the origin to infinity."""


class ResidualParams(ScoreParams):
    """Size of the principal subspace."""

    dim: int | None = Field(
        None,
        ge=1,
        description="dimension of the principal subspace; 1000 from 2048 features, 512 from 768, else half",
        json_schema_extra=tune([0.1, 0.25, 0.5, 0.75], of_features=True),
    )


class Residual(Score):
    """−‖Rᵀ(h − o)‖, the features outside the principal subspace."""

    id = "residual"
    title = "residual norm"
    paper = "Wang et al. 2022, ViM: Out-Of-Distribution with Virtual-logit Matching"
    needs = require("features", "head", "fit")
    cost = "low"
    role = "s_ood"
    Params = ResidualParams

    def fit(self, data: FitData, params: ResidualParams) -> Theta:
        return residual_subspace(data, params.dim, self.id)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: ResidualParams) -> Array:
        return -residual_norm(xp, x.h, theta)


class Vim(Score):
    """log Σ exp z_k − ‖α Rᵀ(h − o)‖ (Wang et al. 2022, in the logit form of the virtual class)."""

    id = "vim"
    title = "virtual-logit matching"
    paper = "Wang et al. 2022, ViM: Out-Of-Distribution with Virtual-logit Matching"
    needs = require("logits", "features", "head", "fit")
    cost = "low"
    role = "s_ood"
    Params = ResidualParams

    def fit(self, data: FitData, params: ResidualParams) -> Theta:
        theta = residual_subspace(data, params.dim, self.id)
        alpha = _alpha(data, theta)  # folded into the subspace: one node less in the graph
        return Theta({name: alpha * part for name, part in theta.items()}, theta.notes, theta.settled)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: ResidualParams) -> Array:
        return xp.energy(x.z) - residual_norm(xp, x.h, theta)


def residual_norm(xp: Namespace, h: Array, theta: Mapping[str, Array]) -> Array:
    """‖Rᵀh − Rᵀo‖, the offset folded so that a large origin does not cancel."""
    return xp.norm(xp.affine(h, theta["basis"], theta["offset"]))


def residual_subspace(data: FitData, dim: int | None, owner: str) -> Theta:
    """Rows of `basis` span the complement of the principal subspace of h − o, with o = −W⁺b (0 without a head)."""
    if data.dim < 2:
        raise ScoreError(f"{owner} needs at least two features, got {data.dim}.")
    size = default_dim(data.dim) if dim is None else dim
    if size >= data.dim:
        raise ScoreError(
            f"{owner}'s parameter dim must be from 1 to {data.dim - 1} for {data.dim} features, got {size}."
        )
    origin = head_origin(data.head) if data.head is not None else np.zeros(data.dim)
    _, directions = principal_directions(feature_moments(data).second_moment(origin))
    basis = np.ascontiguousarray(directions[:, size:].T)
    return Theta({"basis": basis, "offset": -(basis @ origin)}, settled={"dim": size})


def default_dim(features: int) -> int:
    """The paper's choice."""
    if features >= 2048:
        return 1000
    return 512 if features >= 768 else features // 2


def head_origin(head: Head) -> Float:
    """o = −W⁺b, the feature vector whose logits vanish."""
    return np.asarray(-np.linalg.pinv(head.weight, rtol=PINV_RTOL) @ head.bias, dtype=np.float64)


def _alpha(data: FitData, theta: Theta) -> Float:
    """Scale that matches the virtual logit to the maximum logit: |E[max z]| / E‖residual‖.

    The size of E[max z], since a head whose logits are all negative would turn the residual round. A residual that is
    zero but for rounding (fewer rows than dimensions) would make α explode: the features' own scale bounds it.
    """
    peak = residual = size = 0.0
    for batch in data.batches():
        peak += float(np.sum(np.max(batch.logits, axis=1)))
        residual += float(np.sum(np.linalg.norm(batch.h @ theta["basis"].T + theta["offset"], axis=1)))
        size += float(np.sum(np.linalg.norm(batch.h, axis=1)))
    return np.asarray(abs(peak) / max(residual, 1e-6 * size, np.finfo(float).tiny))
