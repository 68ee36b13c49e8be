"""Divergence from the typical softmax of each class."""

from collections.abc import Mapping

import numpy as np

from models.scores.base import ALL_PROJECTIONS, Inputs, NoParams, Score, Theta, require
from models.scores.fitdata import FitData
from models.scores.moments import Float
from models.scores.namespace import Array, Namespace
from models.scores.numpy_namespace import NumpyNamespace

from .fdbd import check_table_size
from .odds import entropy, odds

FLOOR = 1e-30
"""Smallest template probability; a class never predicted with another then costs p·69 nats, not infinitely many."""


class Klm(Score):
    """−min_k KL(p ‖ d_k) = H(p) + max_k Σ_j p_j log d_kj, d_k the mean softmax of fit rows predicted k."""

    id = "klm"
    title = "KL matching"
    paper = "Hendrycks et al. 2022, Scaling Out-of-Distribution Detection for Real-World Settings"
    needs = require("logits", "fit")
    cost = "low"
    role = "s_ood"
    projections = ALL_PROJECTIONS

    def fit(self, data: FitData, params: NoParams) -> Theta:
        check_table_size(self.id, data.n_classes)
        sums, counts = _softmax_sums(data)
        seen = counts > 0
        templates = sums[seen] / counts[seen, None]
        missing = int(np.sum(~seen))
        notes = (f"klm: {missing} classes are never predicted on the fit data: no template.",) if missing else ()
        return Theta({"log_templates": np.log(np.maximum(templates, FLOOR))}, notes)

    def formula(self, xp: Namespace, x: Inputs, theta: Mapping[str, Array], params: NoParams) -> Array:
        best = xp.max(xp.matmul_t(xp.softmax(x.z), theta["log_templates"]), keepdims=True)
        return xp.sum(entropy(xp, odds(xp, x)) + best)


def _softmax_sums(data: FitData) -> tuple[Float, Float]:
    xp = NumpyNamespace()
    sums = np.zeros((data.n_classes, data.n_classes))
    counts = np.zeros(data.n_classes)
    for batch in data.batches():
        np.add.at(sums, batch.predictions, xp.softmax(batch.logits))
        np.add.at(counts, batch.predictions, 1.0)
    return sums, counts
