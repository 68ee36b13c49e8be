"""Distance to the decision boundaries."""

from collections.abc import Mapping

import numpy as np

from models.errors import ScoreError
from models.scores.base import FEATURE_PROJECTIONS, Inputs, NoParams, Score, Theta, require
from models.scores.fitdata import FitData
from models.scores.moments import Float, feature_moments
from models.scores.namespace import Array, Namespace

from .shaping import head_theta

MOST_CLASSES = 10_000


class Fdbd(Score):
    """mean_{k≠m} (z_m − z_k) / ‖w_m − w_k‖ / ‖h − μ‖ (Liu & Qin 2024)."""

    id = "fdbd"
    title = "fast decision boundary distance"
    paper = "Liu & Qin 2024, Fast Decision Boundary based Out-of-Distribution Detector"
    needs = require("logits", "features", "head", "fit")
    cost = "low"
    role = "s_ood"
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: NoParams) -> Theta:
        check_table_size(self.id, data.n_classes)
        moments = feature_moments(data)
        spread = float(np.sqrt(np.trace(moments.covariance)))
        if not spread > 0:
            raise ScoreError(f"{self.id} measures distances from the mean of the fit features, and they do not vary.")
        inverse, twins = _inverse_gaps(head_theta(data.head)["weight"])
        notes = (f"fdbd: {twins} pairs of classes share their head weights and have no boundary.",) if twins else ()
        return Theta({"inverse": inverse, "mean": moments.mean, "floor": np.asarray(1e-9 * spread)}, notes)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        lead = xp.max(x.z, keepdims=True) - x.z
        distances = lead * xp.take(theta["inverse"], xp.argmax(x.z))
        deviation = xp.maximum(xp.norm(x.h - theta["mean"]), theta["floor"])
        return xp.sum(distances) / (deviation * (x.n_classes - 1.0))


def check_table_size(id: str, classes: int) -> None:
    """Refuse a table of class × class that no graph should carry."""
    if classes > MOST_CLASSES:
        raise ScoreError(f"{id} keeps a table of class × class: at most {MOST_CLASSES} classes, got {classes}.")


def _inverse_gaps(weight: Float) -> tuple[Float, int]:
    """1/‖w_m − w_k‖ [C, C], 0 on the diagonal and between equal rows; how many such pairs there are."""
    squares = np.sum(weight**2, axis=1)
    gaps = np.sqrt(np.maximum(squares[:, None] + squares - 2 * weight @ weight.T, 0.0))
    equal = gaps <= 1e-7 * np.sqrt(max(float(np.max(squares)), np.finfo(float).tiny))
    twins = int((np.sum(equal) - len(weight)) // 2)
    return np.where(equal, 0.0, 1.0 / np.where(equal, 1.0, gaps)), twins
