"""A fit set larger than memory: statistics see one batch at a time."""

import tracemalloc

import numpy as np
import pytest

from models.scores import FitBatch, FitData, fit_score
from models.signals import Head

CLASSES, DIM, ROWS, BATCHES = 5, 64, 2000, 60
ALL_BYTES = 8 * ROWS * BATCHES * (DIM + CLASSES)


def batches():
    """A stream that makes its rows as it goes, the same each time."""
    for seed in range(BATCHES):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(ROWS, DIM))
        yield FitBatch(features @ HEAD.weight.T + HEAD.bias, features, rng.integers(CLASSES, size=ROWS))


HEAD = Head(np.random.default_rng(99).normal(size=(CLASSES, DIM)) / 8, np.zeros(CLASSES), "gemm")


@pytest.mark.parametrize(
    "spec",
    ["mahalanobis", "vim", "fdbd", "klm", "ctm_mean", "pnml", "sirc", "knn:k=5,bank=500", "energy+project=class_pred"],
)
def test_memory_is_that_of_a_few_batches(spec):
    data = FitData.stream(batches, HEAD)
    tracemalloc.start()
    fit_score(spec, None, data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < ALL_BYTES / 6, f"{peak / 2**20:.0f} MB for a fit set of {ALL_BYTES / 2**20:.0f} MB"
