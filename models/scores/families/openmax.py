"""OpenMax: logits revised by extreme-value tails of the distances to class means."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitData
from models.scores.moments import Float
from models.scores.namespace import Array, Namespace

from .distances import squared_distances
from .weibull import fit_weibull

FEWEST = 3
"""Distances below which a class has no tail of its own."""


class OpenMaxParams(ScoreParams):
    """Length of the tail, and how many top classes are revised."""

    tail: int = Field(20, ge=FEWEST, description="largest distances per class", json_schema_extra=tune([10, 20, 50]))
    alpha: int | None = Field(None, ge=1, description="top classes that are revised; at most 10 when not given")


class OpenMax(Score):
    """Log-odds of "known" against "unknown", log Σ exp ẑ_k − ẑ_0 (Bendale & Boult 2016, Algorithm 2).

    For the i-th of the α top classes, ω = (α − i + 1)/α · F(‖h − μ_k‖) with the class's Weibull tail F; a share ω of
    its logit moves to the unknown class: ẑ_k = z_k (1 − ω), ẑ_0 = Σ z_k ω. That takes top logits to be positive. A head
    whose top logits are mostly negative would turn the score round, and is lifted, which softmax does not notice.
    """

    id = "openmax"
    title = "OpenMax (as log-odds of known)"
    paper = "Bendale & Boult 2016, Towards Open Set Deep Networks"
    needs = require("logits", "features", "fit", "labels")
    cost = "medium"
    role = "s_ood"
    Params = OpenMaxParams
    projections = FEATURE_PROJECTIONS

    def fit(self, data: FitData, params: OpenMaxParams) -> Theta:
        counts, means = _correct_means(data)
        tails = _tails(data, means, params.tail)
        shape, scale, notes = _weibulls(tails, counts)
        alpha = min(params.alpha or 10, data.n_classes)
        ranks = np.maximum(alpha - np.arange(data.n_classes), 0) / alpha
        centre = means[counts > 0].mean(axis=0)
        lift = lift_of_top_logits(data)
        theta = {"means": means - centre, "centre": centre, "shape": shape, "scale": scale, "ranks": ranks}
        if lift:
            notes += (f"openmax: top logits of the fit data are mostly negative and were lifted by {lift:.3g}.",)
        return Theta({**theta, "lift": np.asarray(lift)}, notes, {"alpha": alpha})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: OpenMaxParams) -> Array:
        distance = xp.sqrt(squared_distances(xp, x.h - theta["centre"], theta["means"]))
        tail = 1.0 - xp.exp(-xp.power(distance / theta["scale"], theta["shape"]))
        z = xp.top(x.z, x.n_classes) + theta["lift"]
        moved = z * theta["ranks"] * xp.take_along(tail, xp.top_indices(x.z, x.n_classes))
        return xp.logsumexp(z - moved) - xp.sum(moved)


def lift_of_top_logits(data: FitData) -> float:
    """What makes every top logit of the fit data positive, where most are negative (a head of log-odds); else 0."""
    top = np.concatenate([np.max(batch.logits, axis=1) for batch in data.batches()])
    return -float(np.min(top)) if np.median(top) < 0 else 0.0


def _correct_means(data: FitData) -> tuple[Float, Float]:
    """Mean features of the rows that the classifier gets right, per class."""
    counts = np.zeros(data.n_classes)
    sums = np.zeros((data.n_classes, data.dim))
    for batch in data.batches():
        right = batch.predictions == batch.y
        np.add.at(sums, batch.y[right], batch.h[right])
        np.add.at(counts, batch.y[right], 1.0)
    if not counts.any():
        raise ScoreError("openmax needs correctly classified fit rows, and the classifier gets none of them right.")
    return counts, sums / np.maximum(counts, 1.0)[:, None]


def _tails(data: FitData, means: Float, tail: int) -> list[Float]:
    """The largest distances of each class's correct rows to its mean."""
    tails: list[Float] = [np.empty(0) for _ in range(data.n_classes)]
    for batch in data.batches():
        right = batch.predictions == batch.y
        labels = batch.y[right]
        distances = np.linalg.norm(batch.h[right] - means[labels], axis=1)
        for label in np.unique(labels):
            merged = np.sort(np.concatenate([tails[label], distances[labels == label]]))
            tails[label] = merged[-tail:]
    return tails


def _weibulls(tails: list[Float], counts: Float) -> tuple[Float, Float, tuple[str, ...]]:
    """Weibull per class: with too few distances the tail of all classes, with none no revision."""
    pooled = np.concatenate(tails)
    pooled = pooled[pooled > 0]
    if len(pooled) < FEWEST:
        raise ScoreError(f"openmax needs at least {FEWEST} correct fit rows at different features, got {len(pooled)}.")
    shared = fit_weibull(pooled)
    fits = [fit_weibull(t[t > 0]) if np.sum(t > 0) >= FEWEST else shared for t in tails]
    shape = np.array([fit[0] for fit in fits])
    scale = np.array([fit[1] for fit in fits])
    scale[counts == 0] = np.inf
    few = int(sum(np.sum(t > 0) < FEWEST for t in tails))
    notes = (f"openmax: {few} classes have fewer than {FEWEST} correct fit rows and share one tail.",) if few else ()
    return shape, scale, notes
