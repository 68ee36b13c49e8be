"""Scores of the top class: maximum softmax probability, softmax margin, maximum logit, normalised maximum logit."""

from collections.abc import Mapping

from pydantic import Field

from models.scores.base import ALL_PROJECTIONS, Inputs, NoParams, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.namespace import TINY, Array, Namespace


class Msp(Score):
    """Log-odds of the top class, z_top − log Σ_{k≠top} exp z_k.

    logit(max p), so the ranking of the maximum softmax probability, without its saturation at 1.
    """

    id = "msp"
    title = "maximum softmax probability (as log-odds)"
    paper = "Hendrycks & Gimpel 2017, A Baseline for Detecting Misclassified and Out-of-Distribution Examples"
    needs = require("logits")
    cost = "low"
    role = "s_id"
    projections = ALL_PROJECTIONS

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        return xp.max(x.z) - xp.logsumexp(xp.others(x.z, x.n_classes))


class Margin(Score):
    """−log(1 − m) with the softmax margin m = p_top − p_second.

    1 − m = (Σ_{k≠top} p_k) + p_second, a sum of small terms: its logarithm keeps the ranking where m rounds to 1.
    """

    id = "margin"
    title = "softmax margin (as −log(1 − margin))"
    paper = "Zhou et al. 2025, A Novel Characterization of the Population AURC, Table S2"
    needs = require("logits")
    cost = "low"
    role = "s_id"
    projections = ALL_PROJECTIONS

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        second = xp.max(xp.others(x.z, x.n_classes), keepdims=True)
        doubled = xp.where(xp.is_top(x.z, x.n_classes), second, x.z)
        return xp.logsumexp(x.z) - xp.logsumexp(doubled)


class MaxLogit(Score):
    """max_k z_k."""

    id = "max_logit"
    title = "maximum logit"
    paper = "Hendrycks et al. 2022, Scaling Out-of-Distribution Detection for Real-World Settings"
    needs = require("logits")
    cost = "low"
    role = "s_ood"
    projections = ALL_PROJECTIONS

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        return xp.max(x.z)


class PNormParams(ScoreParams):
    """The norm, and whether logits are centred first."""

    p: float = Field(4.0, ge=1, le=64, description="order of the norm", json_schema_extra=tune([1, 2, 3, 4, 6, 8]))
    centre: bool | None = Field(
        None, description="subtract the mean logit; yes by default, no with two classes (where nothing would be left)"
    )


class PNorm(Score):
    """max_k v_k / ‖v‖_p, with v the logits, centred or not."""

    id = "pnorm"
    title = "maximum logit after p-norm normalisation"
    paper = "Cattelan & Silva 2024, How to Fix a Broken Confidence Estimator"
    needs = require("logits")
    cost = "low"
    role = "s_id"
    Params = PNormParams
    projections = ALL_PROJECTIONS

    def fit(self, data: FitData, params: PNormParams) -> Theta:
        centre = data.n_classes > 2 if params.centre is None else params.centre
        return Theta(settled={"centre": centre})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: PNormParams) -> Array:
        v = x.z - xp.mean(x.z, keepdims=True) if params.centre else x.z
        # Powers of |v| relative to the largest entry can neither overflow nor all vanish.
        peak = xp.maximum(xp.max(xp.abs(v), keepdims=True), TINY)
        v = v / peak
        norm = xp.power(xp.sum(xp.power(xp.abs(v), params.p)), 1.0 / params.p)
        return xp.max(v) / xp.maximum(norm, TINY)
