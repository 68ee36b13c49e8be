"""Norm of the gradient that pulls the softmax to uniform."""

from collections.abc import Mapping

from models.scores.base import FEATURE_PROJECTIONS, Inputs, NoParams, Score, require
from models.scores.namespace import Array, Namespace


class GradNorm(Score):
    """‖∂ KL(u ‖ p)/∂W‖₁ = ‖h‖₁ · ‖p − 1/C‖₁: the gradient (p − u) hᵀ is an outer product (Huang et al. 2021)."""

    id = "gradnorm"
    title = "gradient norm"
    paper = "Huang et al. 2021, On the Importance of Gradients for Detecting Distributional Shifts in the Wild"
    needs = require("logits", "features")
    cost = "low"
    role = "s_ood"
    projections = FEATURE_PROJECTIONS

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        return xp.norm1(x.h) * xp.norm1(xp.softmax(x.z) - 1.0 / x.n_classes)
