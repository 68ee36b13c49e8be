"""Class typical matching: cosine to class weights or class means."""

from collections.abc import Mapping

import numpy as np

from models.errors import ScoreError
from models.scores.base import ALL_PROJECTIONS, Inputs, NoParams, Score, Theta, require
from models.scores.fitdata import FitData
from models.scores.moments import Float, class_moments
from models.scores.namespace import TINY, Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace

from .shaping import head_theta


class Ctm(Score):
    """max_k cos(w_k, h)."""

    id = "ctm"
    title = "class typical matching"
    paper = "Ngoc-Hieu et al. 2023, A Cosine Similarity-based Method for Out-of-Distribution Detection"
    needs = require("features", "head")
    cost = "low"
    role = "s_ood"
    projections = ALL_PROJECTIONS

    def fit(self, data: FitData, params: NoParams) -> Theta:
        return Theta({"prototypes": _unit_rows(head_theta(data.head)["weight"])})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        if x.classwise is not None:
            cosine = x.classwise.dot(theta["prototypes"]) / xp.maximum(x.classwise.norm(), TINY)
        else:
            cosine = xp.matmul_t(xp.unit(x.h), theta["prototypes"])
        return xp.max(cosine + theta["absent"] if "absent" in theta else cosine)


class CtmMean(Ctm):
    """max_k cos(μ_k, h), μ_k the class means of the fit data."""

    id = "ctm_mean"
    title = "class typical matching with class means"
    needs = require("features", "fit", "labels")
    fits_projected = False

    def fit(self, data: FitData, params: NoParams) -> Theta:
        stats = class_moments(data)
        if not stats.present.any():
            raise ScoreError(f"{self.id} needs class means, and no fit row has a label in 0…{data.n_classes - 1}.")
        prototypes = {"prototypes": _unit_rows(stats.means)}
        if stats.present.all():
            return Theta(prototypes)
        # A cosine is at least −1, so a class without a mean, at −2 and below, is never the closest.
        absent = np.where(stats.present, 0.0, -3.0)
        note = f"ctm_mean: {int(np.sum(~stats.present))} of {data.n_classes} classes have no fit row and no mean."
        return Theta({**prototypes, "absent": absent}, (note,))


def _unit_rows(table: Float) -> Float:
    rows: Float = NumpyNamespace().unit(table)
    return rows
