"""The free energy of the logits."""

from collections.abc import Mapping

from pydantic import Field

from models.scores.base import ALL_PROJECTIONS, Inputs, Score, ScoreParams, require, tune
from models.scores.namespace import Array, Namespace


class EnergyParams(ScoreParams):
    """Temperature of the log-sum-exp."""

    T: float = Field(1.0, gt=0, le=1e4, description="temperature", json_schema_extra=tune([0.5, 1.0, 2.0, 5.0]))


class Energy(Score):
    """T · log Σ_k exp(z_k / T) (the papers' energy, negated)."""

    id = "energy"
    title = "energy"
    paper = "Liu et al. 2020, Energy-based Out-of-distribution Detection"
    needs = require("logits")
    cost = "low"
    role = "s_ood"
    Params = EnergyParams
    projections = ALL_PROJECTIONS

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: EnergyParams) -> Array:
        return xp.energy(x.z, params.T)
