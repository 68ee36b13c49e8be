"""Temperature scaling: a logit score on z/T, T fitted by the likelihood of labels."""

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from models.errors import ScoreError
from models.scores.base import Inputs, Score, ScoreParams, Theta, require
from models.scores.fitdata import FitBatch, FitData
from models.scores.namespace import Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace
from models.signals import Head

from .base import Wrapper

BOUNDS = (-4.0, 4.0)
"""Search range of ln T."""


class TemperatureParams(ScoreParams):
    """T, or None to fit it."""

    T: float | None = Field(None, gt=0, le=1e4, description="temperature; fitted on validation labels when not given")


class Temperature(Wrapper):
    """Divides logits, and the head that makes them, by T (Guo et al. 2017)."""

    id = "temperature"
    title = "temperature scaling"
    paper = "Guo et al. 2017, On Calibration of Modern Neural Networks"
    needs = require("logits")
    Params = TemperatureParams
    order = 1

    def check(self, score: Score, params: TemperatureParams, data: FitData) -> None:
        if not score.needs & {"logits", "head"}:
            raise ScoreError(f"Temperature is for scores that read logits; {score.id} reads features only.")

    def fit(
        self, data: FitData, params: TemperatureParams, validation: FitData | None
    ) -> tuple[Theta, TemperatureParams]:
        if params.T is not None:
            return Theta(), params
        source = validation if validation is not None and validation.has_labels else data
        if not source.has_labels:
            raise ScoreError(
                "Temperature needs labels to be fitted and the data has none; give it, as in temperature=1.5."
            )
        notes = () if source is validation else ("The temperature was fitted on the fit data: no validation labels.",)
        return Theta(notes=notes), TemperatureParams(T=fit_temperature(source))

    def apply(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: TemperatureParams) -> Inputs:
        return Inputs(lambda: x.z / params.T, lambda: x.h, x.n_classes, x.dim, x.classwise)

    def head(self, head: Head | None, theta: Theta, params: TemperatureParams) -> Head | None:
        if head is None or params.T is None:
            return head
        return Head(head.weight / params.T, head.bias / params.T, head.kind)


def fit_temperature(data: FitData) -> float:
    """The T that minimises the negative log-likelihood of the labels, by bisection on its derivative in ln T.

    With β = 1/T the likelihood is concave in β, so its derivative Σ (z_y − E_p[z]) changes sign once.
    """
    if not any(_known(batch, data).any() for batch in data.batches()):
        raise ScoreError(
            f"Temperature needs labels to be fitted, and no finite row has one in 0…{data.n_classes - 1}; give it, as"
            " in temperature=1.5."
        )
    low, high = BOUNDS
    if _slope(data, float(np.exp(-low))) > 0:
        raise ScoreError(
            "No temperature fits labels that the classifier predicts without a single error; give validation data it "
            "was not trained on, or a value, as in temperature=1.5."
        )
    for _ in range(40):
        middle = (low + high) / 2
        if _slope(data, float(np.exp(-middle))) > 0:
            high = middle
        else:
            low = middle
    return float(np.exp((low + high) / 2))


def _slope(data: FitData, beta: float) -> float:
    """d/dβ of the log-likelihood; positive where logits should be sharper, that is T smaller."""
    xp = NumpyNamespace()
    total = 0.0
    for batch in data.batches():
        known = _known(batch, data)
        z, y = batch.logits[known], batch.y[known]
        expected = np.sum(xp.softmax(z * beta) * z, axis=1)
        total += float(np.sum(z[np.arange(len(z)), y] - expected))
    return total


def _known(batch: FitBatch, data: FitData) -> np.ndarray:
    """Rows whose label is a class of the classifier."""
    return np.asarray((batch.y >= 0) & (batch.y < data.n_classes))
