"""Neural-collapse geometry: how much of the features lies in the principal subspace."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.moments import feature_moments, principal_directions
from models.scores.namespace import TINY, Array, Namespace

from .openmax import lift_of_top_logits


class NecoParams(ScoreParams):
    """The subspace, and whether the maximum logit calibrates the share."""

    dim: int | None = Field(
        None,
        ge=1,
        description="dimension of the subspace; the number of classes when not given, as collapsed class means span it",
        json_schema_extra=tune([0.05, 0.1, 0.2, 0.4, 0.7], of_features=True),
    )
    times_logit: bool = Field(False, description="multiply by the maximum logit", json_schema_extra=tune([False, True]))


class Neco(Score):
    """‖Pᵀ(h − μ)‖ / ‖h − μ‖, P the principal directions of the fit features (Ammar et al. 2024)."""

    id = "neco"
    title = "share in the principal subspace"
    paper = "Ammar et al. 2024, NECO: Neural Collapse Based Out-of-distribution Detection"
    needs = require("logits", "features", "fit")
    cost = "low"
    role = "s_ood"
    Params = NecoParams

    def fit(self, data: FitData, params: NecoParams) -> Theta:
        size = min(data.n_classes, max(data.dim - 1, 1)) if params.dim is None else params.dim
        if size > data.dim:
            raise ScoreError(f"neco's parameter dim must be at most {data.dim}, the number of features, got {size}.")
        moments = feature_moments(data)
        _, directions = principal_directions(moments.covariance)
        basis = np.ascontiguousarray(directions[:, :size].T)
        arrays = {"mean": moments.mean, "basis": basis}
        notes: tuple[str, ...] = ()
        if params.times_logit and (lift := lift_of_top_logits(data)):
            # A negative factor would turn the share round.
            arrays["lift"] = np.asarray(lift)
            notes = (f"neco: top logits of the fit data are mostly negative and were lifted by {lift:.3g}.",)
        return Theta(arrays, notes, {"dim": size})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NecoParams) -> Array:
        centred = x.h - theta["mean"]
        share = xp.norm(xp.matmul_t(centred, theta["basis"])) / xp.maximum(xp.norm(centred), TINY)
        if not params.times_logit:
            return share
        return share * (xp.max(x.z) + theta["lift"] if "lift" in theta else xp.max(x.z))
