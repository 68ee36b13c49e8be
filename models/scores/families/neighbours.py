"""Scores against a bank of training features: k-th neighbour distance, nearest-neighbour guidance."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import FEATURE_PROJECTIONS, Inputs, Score, ScoreParams, Theta, require, tune
from models.scores.fitdata import FitBatch, FitData
from models.scores.namespace import Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace


class BankParams(ScoreParams):
    """The bank of training features and the neighbours that count."""

    k: int = Field(50, ge=1, description="neighbours", json_schema_extra=tune([1, 5, 10, 20, 50, 100, 200]))
    bank: int = Field(10_000, ge=1, description="training features kept; a larger fit set is sampled")
    seed: int = Field(0, ge=0, description="seed of the sample")


class Knn(Score):
    """−‖u − u_(k)‖, the distance to the k-th nearest of the normalised training features (Sun et al. 2022).

    The search runs in float32 and ranks by u·u_i − ‖u_i‖²/2, which falls with the distance whatever the length of u_i
    (a row without activation has length 0). Both are taken from the bank's mean, as features that share a direction
    differ by less than float32 could tell. The distance to the neighbour found is then taken in float64.
    """

    id = "knn"
    title = "k-th nearest neighbour"
    paper = "Sun et al. 2022, Out-of-Distribution Detection with Deep Nearest Neighbors"
    needs = require("features", "fit")
    cost = "high"
    role = "s_ood"
    Params = BankParams
    projections = FEATURE_PROJECTIONS
    inexact = "the neighbours are found in float32: of two that differ by less than 1e-7 either may be the k-th"

    def fit(self, data: FitData, params: BankParams) -> Theta:
        unit = NumpyNamespace().unit(_rows(self.id, data, params).h)
        centre = unit.mean(axis=0)
        bank = (unit - centre).astype(np.float32)
        return Theta({"bank": bank, "centre": centre, "half_squares": np.sum(bank.astype(np.float64) ** 2, axis=1) / 2})

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: BankParams) -> Array:
        unit = xp.unit(x.h) - theta["centre"]
        nearness = xp.affine(xp.single(unit), theta["bank"], xp.single(-theta["half_squares"]))
        kth = xp.column(xp.top_indices(nearness, params.k), params.k - 1)
        return -xp.norm(unit - xp.double(xp.take(theta["bank"], kth)))


class NnGuideParams(BankParams):
    """A narrower default bank, as the guidance averages it."""

    k: int = Field(10, ge=1, description="neighbours", json_schema_extra=tune([1, 5, 10, 50, 100]))


class NnGuide(Score):
    """E(z) · G(h): energy times the mean of the k largest E_i cos(h, h_i) over the bank (Park et al. 2023)."""

    id = "nnguide"
    title = "nearest-neighbour guidance"
    paper = "Park et al. 2023, Nearest Neighbor Guidance for Out-of-Distribution Detection"
    needs = require("logits", "features", "fit")
    cost = "high"
    role = "s_ood"
    Params = NnGuideParams
    projections = FEATURE_PROJECTIONS
    inexact = "the k similarities are float32 products"

    def fit(self, data: FitData, params: NnGuideParams) -> Theta:
        rows = _rows(self.id, data, params)
        energy = NumpyNamespace().energy(rows.logits)
        # Energies below zero would reward low confidence in the product: they are lifted until none is.
        lift = max(0.0, -float(np.min(energy)))
        guides = (NumpyNamespace().unit(rows.h) * (energy + lift)[:, None]).astype(np.float32)
        notes = (f"nnguide: energies of the fit data reach {-lift:.3g} and were lifted by {lift:.3g}.",) if lift else ()
        return Theta({"guides": guides, "lift": np.asarray(lift)}, notes)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NnGuideParams) -> Array:
        similarity = xp.matmul_t(xp.single(xp.unit(x.h)), theta["guides"])
        guidance = xp.mean(xp.double(xp.top(similarity, params.k)))
        return (xp.energy(x.z) + theta["lift"]) * guidance


def _rows(id: str, data: FitData, params: BankParams) -> FitBatch:
    """The fit rows of the bank."""
    rows = data.sample(params.bank, params.seed)
    if params.k > len(rows):
        raise ScoreError(f"{id}'s parameter k must be at most {len(rows)}, the fit rows in its bank, got {params.k}.")
    return rows
