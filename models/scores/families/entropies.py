"""Entropies of the softmax, negated so that higher is better."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from models.scores.base import ALL_PROJECTIONS, Inputs, NoParams, Role, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.namespace import Array, Namespace

from .odds import Odds, entropy, log_one_minus, odds, sorted_odds


class _SoftmaxScore(Score):
    """What the entropies share: a squeeze from [B, 1] to [B] is a sum over the last axis."""

    needs = require("logits")
    cost = "low"
    role: ClassVar[Role] = "s_id"
    projections = ALL_PROJECTIONS


class Entropy(_SoftmaxScore):
    """−H(p) = Σ p_k log p_k."""

    id = "entropy"
    title = "negative Shannon entropy"
    paper = "Ovadia et al. 2019, Can You Trust Your Model's Uncertainty?"

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        return -xp.sum(entropy(xp, odds(xp, x)))


class Collision(_SoftmaxScore):
    """log Σ p_k² = log(1 + Σ q_k²) − 2 log(1 + r)."""

    id = "collision"
    title = "negative collision (order 2 Rényi) entropy"
    paper = "Granese et al. 2021, DOCTOR: A Simple Method for Detecting Misclassification Errors"

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        o = odds(xp, x)
        return xp.sum(xp.log1p(xp.sum_squares(o.q, keepdims=True)) - o.log_norm * 2.0)


class Gini(_SoftmaxScore):
    """−1 + Σ p_k² = −(2r + r² − Σ q_k²) / (1 + r)²."""

    id = "gini"
    title = "negative Gini impurity"
    paper = "Granese et al. 2021, DOCTOR: A Simple Method for Detecting Misclassification Errors"

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        o = odds(xp, x)
        spread = o.rest * 2.0 + (o.rest * o.rest - xp.sum_squares(o.q, keepdims=True))
        norm = o.rest + 1.0
        return -xp.sum(spread / (norm * norm))


class Guessing(_SoftmaxScore):
    """1 − Σ_k k p_(k) = −Σ_k (k − 1) p_(k): the expected number of wrong guesses, negated."""

    id = "guessing"
    title = "negative guessing entropy"
    paper = "Massey 1994, Guessing and Entropy"

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        o = sorted_odds(xp, x)
        wrong_guesses = xp.constant(np.arange(x.n_classes, dtype=np.float64))
        return -xp.sum(o.q * wrong_guesses / (o.rest + 1.0))


class TruncatedParams(ScoreParams):
    """How many of the most probable classes count."""

    top: int | None = Field(
        None, ge=1, description="classes that count, most probable first; all of them, at most 100, when not given"
    )


class RenyiParams(TruncatedParams):
    """Order of the entropy."""

    alpha: float = Field(0.5, gt=0, lt=1, description="order", json_schema_extra=tune([0.1, 0.25, 0.5, 0.75, 0.9]))


class GenParams(TruncatedParams):
    """Exponent of the generalised entropy."""

    gamma: float = Field(
        0.1, gt=0, lt=1, description="exponent", json_schema_extra=tune([0.01, 0.05, 0.1, 0.25, 0.5, 0.9])
    )


class _Truncated(_SoftmaxScore):
    """Entropies over the M most probable classes."""

    def fit(self, data: FitData, params: TruncatedParams) -> Theta:
        return Theta(settled={"top": min(params.top or 100, data.n_classes)})


def _leading(xp: Namespace, x: Inputs, top: int | None) -> tuple[Odds, Array]:
    """Odds, and a mask of the classes that count; the order is by class when all do, to spare the sort."""
    if top is None or top >= x.n_classes:
        return odds(xp, x), xp.constant(np.ones(x.n_classes, dtype=bool))
    return sorted_odds(xp, x), xp.constant(np.arange(x.n_classes) < top)


class Renyi(_Truncated):
    """−1/(1−α) · log Σ_{k≤M} p_(k)^α = −[log(1 + Σ q^α) − α log(1 + r)] / (1 − α)."""

    id = "renyi"
    title = "negative Rényi entropy"
    paper = "Rényi 1961, On Measures of Entropy and Information"
    Params = RenyiParams

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: RenyiParams) -> Array:
        o, counted = _leading(xp, x, params.top)
        powers = xp.where(counted, xp.power(o.q, params.alpha), 0.0)
        log_sum = xp.log1p(xp.sum(powers, keepdims=True)) - o.log_norm * params.alpha
        return xp.sum(log_sum) * (-1.0 / (1.0 - params.alpha))


class Gen(_Truncated):
    """−Σ_{k≤M} (p_(k) (1 − p_(k)))^γ, each factor in log space."""

    id = "gen"
    title = "generalised entropy"
    paper = "Liu et al. 2023, GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection"
    role = "both"
    Params = GenParams

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: GenParams) -> Array:
        o, counted = _leading(xp, x, params.top)
        log_product = log_one_minus(xp, o) - o.gap - o.log_norm
        return -xp.sum(xp.where(counted, xp.exp(log_product * params.gamma), 0.0))
