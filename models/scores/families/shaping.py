"""Energy after reshaping the features: ReAct, ASH, SCALE."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field

from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.namespace import TINY, Array, Namespace
from models.signals import Head

QUANTILE_VALUES = 10_000_000
"""Activations from which quantiles are taken; of a larger fit set rows are sampled."""

MAX_LOG_SCALE = 20.0
"""exp() of more would only overflow; real activations stay below 5."""


class ReActParams(ScoreParams):
    """Where activations are clipped."""

    quantile: float = Field(
        0.9,
        gt=0,
        le=1,
        description="share of activations kept",
        json_schema_extra=tune([0.8, 0.85, 0.9, 0.95, 0.99]),
    )


class ShapeParams(ScoreParams):
    """The share of each row's activations below the percentile."""

    percentile: float = Field(
        0.65, ge=0, lt=1, description="share of activations below", json_schema_extra=tune([0.4, 0.65, 0.8, 0.9])
    )


class AshParams(ShapeParams):
    """The variant of the treatment of the kept activations."""

    variant: Literal["s", "p", "b"] = Field("s", description="s: scale the kept, p: prune only, b: binarise the kept")


class ScaleParams(ShapeParams):
    """SCALE's own default."""

    percentile: float = Field(
        0.85, ge=0, lt=1, description="share of activations below", json_schema_extra=tune([0.65, 0.8, 0.85, 0.9])
    )


class _ShapedEnergy(Score):
    """log Σ exp(ĥ Wᵀ + b) for reshaped features ĥ."""

    needs = require("features", "head")
    cost = "low"
    role = "s_ood"
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: Any) -> Theta:
        return Theta(head_theta(data.head))

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: Any) -> Array:
        return xp.energy(xp.affine(self.shape(xp, x, theta, params), theta["weight"], theta["bias"]))

    @abstractmethod
    def shape(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: Any) -> Array:
        """The reshaped features."""


def head_theta(head: Head | None) -> dict[str, np.ndarray]:
    """The head as fitted arrays."""
    assert head is not None, "declared in `needs` and checked before"
    return {"weight": head.weight, "bias": head.bias}


class ReAct(_ShapedEnergy):
    """Activations clipped at a quantile c of the fit data, ĥ = min(h, c) (Sun et al. 2021)."""

    id = "react"
    title = "energy after rectified activations"
    paper = "Sun et al. 2021, ReAct: Out-of-distribution Detection With Rectified Activations"
    needs = require("features", "head", "fit")
    Params = ReActParams

    def fit(self, data: FitData, params: ReActParams) -> Theta:
        clip = np.quantile(data.sample(max(1000, QUANTILE_VALUES // data.dim)).h, params.quantile)
        return Theta({**head_theta(data.head), "clip": np.asarray(clip)})

    def shape(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: ReActParams) -> Array:
        return xp.minimum(x.h, theta["clip"])


class Ash(_ShapedEnergy):
    """Activations below each row's percentile removed, the rest treated by `variant` (Djurisic et al. 2023)."""

    id = "ash"
    title = "energy after activation shaping"
    paper = "Djurisic et al. 2023, Extremely Simple Activation Shaping for Out-of-Distribution Detection"
    Params = AshParams

    def shape(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: AshParams) -> Array:
        keep = _kept(x.dim, params.percentile)
        threshold = xp.min(xp.top(x.h, keep), keepdims=True)
        kept = xp.where(xp.greater_equal(x.h, threshold), x.h, 0.0)
        if params.variant == "p":
            return kept
        if params.variant == "b":
            # Zeros tied at the threshold are off, not on: only what is active becomes a one.
            active = xp.greater_equal(x.h, xp.maximum(threshold, TINY))
            return xp.where(active, xp.sum(x.h, keepdims=True) / keep, 0.0)
        return kept * _scale(xp, x.h, keep)


class Scale(_ShapedEnergy):
    """All activations scaled by exp(Σ h / Σ_{kept} h), none removed (Xu et al. 2024)."""

    id = "scale"
    title = "energy after activation scaling"
    paper = "Xu et al. 2024, Scaling for Training Time and Post-hoc Out-of-distribution Detection Enhancement"
    Params = ScaleParams

    def shape(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: ScaleParams) -> Array:
        return x.h * _scale(xp, x.h, _kept(x.dim, params.percentile))


def _kept(dim: int, percentile: float) -> int:
    return max(1, dim - round(dim * percentile))


def _scale(xp: Namespace, h: Array, keep: int) -> Array:
    """exp(s1/s2): all activation over the kept part of it.

    The papers' activations are not negative; where some are, their positive part takes that place, so that s1/s2 ≥ 1.
    """
    active = xp.maximum(h, 0.0)
    total = xp.sum(active, keepdims=True)
    kept = xp.sum(xp.top(active, keep), keepdims=True)
    return xp.exp(xp.minimum(total / xp.maximum(kept, TINY), MAX_LOG_SCALE))
