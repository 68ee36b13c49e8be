"""Two signals in one score: SIRC and the plug-in black-box rule."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.namespace import TINY, Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace

from .odds import entropy, odds
from .residual import residual_norm, residual_subspace

Second = Literal["l1", "residual"]


class SircParams(ScoreParams):
    """Which confidence, augmented by which feature statistic."""

    s1: Literal["msp", "entropy"] = Field("msp", description="confidence", json_schema_extra=tune(["msp", "entropy"]))
    s2: Second = Field("l1", description="feature statistic", json_schema_extra=tune(["l1", "residual"]))


class Sirc(Score):
    """−log[(S1max − S1)(1 + exp(−b (S2 − a)))], the ranking of SIRC (Xia & Bouganis 2022) without underflow.

    S1 is the MSP (maximum 1) or −H (maximum 0); S2 is ‖h‖₁ or −‖residual‖; a = mean − 3 sd and b = 1/sd of S2.
    """

    id = "sirc"
    title = "softmax information retaining combination"
    paper = "Xia & Bouganis 2022, Augmenting Softmax Information for Selective Classification with OOD Data"
    needs = require("logits", "features", "fit")
    cost = "low"
    role = "both"
    Params = SircParams
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: SircParams) -> Theta:
        theta = _second_theta(data, params.s2, self.id)
        mean, sd = _mean_sd(data, theta, params.s2)
        scale = 1.0 / max(sd, 1e-12 * abs(mean), TINY)
        return Theta({**theta, "a": np.asarray(mean - 3 * sd), "b": np.asarray(scale)}, theta.notes)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: SircParams) -> Array:
        o = odds(xp, x)
        doubt = o.rest / (o.rest + 1.0) if params.s1 == "msp" else entropy(xp, o)
        log_doubt = xp.sum(xp.log(xp.maximum(doubt, TINY)))
        return -(log_doubt + xp.softplus((theta["a"] - second(xp, x, theta, params.s2)) * theta["b"]))


class PluginParams(ScoreParams):
    """Costs of abstaining on in-distribution inputs and of accepting outliers."""

    c_in: float = Field(0.25, ge=0, lt=1, description="cost of rejecting an in-distribution input")
    c_out: float = Field(
        0.25,
        gt=0,
        lt=1,
        description="cost of accepting an outlier",
        json_schema_extra=tune([0.01, 0.05, 0.1, 0.25, 0.5]),
    )
    s_ood: Second = Field("l1", description="density ratio", json_schema_extra=tune(["l1", "residual"]))

    @model_validator(mode="after")
    def _costs(self) -> "PluginParams":
        if self.c_in + self.c_out >= 1:
            raise ValueError(f"c_in + c_out must be below 1, got {self.c_in + self.c_out:g}")
        return self


class PluginBb(Score):
    """(1 − c_in − c_out) · max p − c_out / ρ, with ρ an estimate of the density ratio P_in/P_out.

    The black-box plug-in rejector (Narasimhan et al. 2024). ρ is ‖h‖₁ relative to its mean on the fit data, or
    that of the residual over the residual. max p − 1 = −r/(1 + r) takes the place of max p: a constant less, no
    rounding at 1.
    """

    id = "plugin_bb"
    title = "plug-in black-box rule"
    paper = "Narasimhan et al. 2024, Plugin Estimators for Selective Classification with Out-of-distribution Detection"
    needs = require("logits", "features", "fit")
    cost = "low"
    role = "both"
    Params = PluginParams
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: PluginParams) -> Theta:
        theta = _second_theta(data, params.s_ood, self.id)
        mean, _ = _mean_sd(data, theta, params.s_ood)
        return Theta({**theta, "mean": np.asarray(max(abs(mean), TINY))}, theta.notes)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: PluginParams) -> Array:
        o = odds(xp, x)
        statistic = xp.abs(second(xp, x, theta, params.s_ood))
        inverse_ratio = statistic / theta["mean"]
        if params.s_ood == "l1":
            inverse_ratio = theta["mean"] / xp.maximum(statistic, theta["mean"] * 1e-9)
        doubt = xp.sum(o.rest / (o.rest + 1.0))
        return -(doubt * (1.0 - params.c_in - params.c_out) + inverse_ratio * params.c_out)


def second(xp: Namespace, x: Inputs, theta: Mapping[str, Array], kind: Second) -> Array:
    """The feature statistic, higher for in-distribution inputs."""
    return xp.norm1(x.h) if kind == "l1" else -residual_norm(xp, x.h, theta)


def _second_theta(data: FitData, kind: Second, owner: str) -> Theta:
    if kind == "l1":
        return Theta()
    subspace = residual_subspace(data, None, owner)
    return Theta(subspace, subspace.notes)


def _mean_sd(data: FitData, theta: Theta, kind: Second) -> tuple[float, float]:
    """Mean and standard deviation of the statistic over the fit data, merged over batches."""
    xp = NumpyNamespace()
    values = [second(xp, Inputs(b.logits, b.h, data.n_classes, data.dim), theta, kind) for b in data.batches()]
    joined = np.concatenate(values)
    return float(np.mean(joined)), float(np.std(joined))
