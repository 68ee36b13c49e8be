"""Regret of the predictive normalised maximum likelihood."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require
from models.scores.fitdata import FitData
from models.scores.moments import Float, principal_directions
from models.scores.namespace import Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace

from .odds import log_one_minus, odds


class PnmlParams(ScoreParams):
    """Regularisation of the empirical correlation matrix."""

    ridge: float = Field(1e-6, gt=0, le=1, description="added to the eigenvalues, as a share of the largest")


class Pnml(Score):
    """−log Σ_k p_k / (p_k + p_k^g (1 − p_k)), with g = xᵀPx / (1 + xᵀPx) for the normalised feature x.

    P is the ridge-regularised inverse of Σ x_i x_iᵀ. Outside the span of the fit data xᵀPx grows without bound and
    g → 1, which is the paper's other case, reached continuously. The sum is kept as
    1 + Σ_k p_k (1 − p_k)(1 − p_k^g) / (p_k + p_k^g (1 − p_k)), every term ≥ 0, so that small regrets keep their digits,
    and each fraction is reduced by p_k^g, so that a p_k that underflows leaves no 0/0.
    """

    id = "pnml"
    title = "pNML regret"
    paper = "Bibas et al. 2021, Single Layer Predictive Normalized Maximum Likelihood for OOD Detection"
    needs = require("logits", "features", "fit")
    cost = "medium"
    role = "both"
    Params = PnmlParams
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: PnmlParams) -> Theta:
        values, directions = principal_directions(_correlation(data))
        if not values[0] > 0:
            raise ScoreError(f"{self.id} needs fit rows with features, and all of them are zero.")
        scale = 1.0 / np.sqrt(values + params.ridge * float(values[0]))
        return Theta({"whiten": np.ascontiguousarray((directions * scale).T)})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: PnmlParams) -> Array:
        leverage = xp.sum_squares(xp.matmul_t(xp.unit(x.h), theta["whiten"]), keepdims=True)
        g = leverage / (leverage + 1.0)
        o = odds(xp, x)
        log_p = -(o.gap + o.log_norm)
        share, one_minus_p = xp.exp(log_p / (leverage + 1.0)), xp.exp(log_one_minus(xp, o))  # p^(1 − g), 1 − p
        excess = share * one_minus_p * xp.one_minus_exp(log_p * g) / (share + one_minus_p)
        return -xp.log1p(xp.sum(excess))


def _correlation(data: FitData) -> Float:
    """Σ x_i x_iᵀ over normalised features."""
    xp = NumpyNamespace()
    total = np.zeros((data.dim, data.dim))
    for batch in data.batches():
        unit = xp.unit(batch.h)
        total += unit.T @ unit
    return total
