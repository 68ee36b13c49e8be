"""Energy with a sparse head."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.moments import feature_moments
from models.scores.namespace import Array, Namespace

from .shaping import head_theta


class DiceParams(ScoreParams):
    """How much of the head is removed."""

    sparsity: float = Field(
        0.5, ge=0, lt=1, description="share of weights removed", json_schema_extra=tune([0.1, 0.3, 0.5, 0.7, 0.9])
    )


class Dice(Score):
    """log Σ exp(h (M ⊙ W)ᵀ + b): M keeps the weights with the largest mean contribution E[h] ⊙ W."""

    id = "dice"
    title = "energy with a sparsified head"
    paper = "Sun & Li 2022, DICE: Leveraging Sparsification for Out-of-Distribution Detection"
    needs = require("features", "head", "fit")
    cost = "low"
    role = "s_ood"
    Params = DiceParams
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: DiceParams) -> Theta:
        head = head_theta(data.head)
        contribution = head["weight"] * feature_moments(data).mean
        mask = contribution >= np.quantile(contribution, params.sparsity)
        return Theta({"weight": head["weight"] * mask, "bias": head["bias"]})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: DiceParams) -> Array:
        return xp.energy(xp.affine(x.h, theta["weight"], theta["bias"]))
