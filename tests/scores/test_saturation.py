"""Softmax scores where the softmax is 1 to the last bit: ranked as exact arithmetic ranks them, in both places."""

import mpmath
import numpy as np
import pytest

from models.scores import FitData, fit_score
from models.scores.alone import GraphScore
from models.signals import Signals


def exact(z, formula):
    """The paper's formula on the softmax with 400 digits."""
    with mpmath.workdps(400):
        weights = [mpmath.e ** mpmath.mpf(float(v)) for v in z]
        total = mpmath.fsum(weights)
        return formula([w / total for w in weights])


def margin(p):
    first, second = sorted(p, reverse=True)[:2]
    return first - second


FORMULAS = {
    "msp": max,
    "margin": margin,
    "entropy": lambda p: mpmath.fsum(v * mpmath.log(v) for v in p),
    "collision": lambda p: mpmath.log(mpmath.fsum(v**2 for v in p)),
    "gini": lambda p: mpmath.fsum(v**2 for v in p) - 1,
    "renyi": lambda p: -mpmath.log(mpmath.fsum(mpmath.sqrt(v) for v in p)) / mpmath.mpf("0.5"),
    "guessing": lambda p: -mpmath.fsum(k * v for k, v in enumerate(sorted(p, reverse=True))),
    "gen": lambda p: -mpmath.fsum((v * (1 - v)) ** mpmath.mpf(0.1) for v in p),
}


def saturated(classes, rows=60, seed=0):
    """Float32 logits whose top class leads by 20 to 200."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes))
    top = rng.integers(classes, size=rows)
    z[np.arange(rows), top] += rng.uniform(20, 200, size=rows)
    return z.astype(np.float32)


@pytest.mark.parametrize("classes", [2, 7])
@pytest.mark.parametrize("id", list(FORMULAS))
def test_ranking_is_exact_at_gaps_of_20_to_200(id, classes):
    z = saturated(classes)
    truth = [exact(row, FORMULAS[id]) for row in z]
    order = sorted(range(len(z)), key=truth.__getitem__)
    fitted = fit_score(id, None, FitData(z))
    for values in (fitted.compute(Signals(z)), GraphScore(fitted).compute(Signals(z))):
        ranked = values[order]
        assert (np.diff(ranked) > 0).all(), "neighbours in the exact order are tied or swapped"


@pytest.mark.parametrize("id", ["entropy", "collision", "gini", "renyi", "guessing", "gen"])
def test_values_are_exact_at_every_gap(id):
    rng = np.random.default_rng(1)
    z = (rng.normal(size=(40, 5)) * np.geomspace(0.01, 60, 40)[:, None]).astype(np.float32)
    truth = np.array([float(exact(row, FORMULAS[id])) for row in z])
    fitted = fit_score(id, None, FitData(z))
    for values in (fitted.compute(Signals(z)), GraphScore(fitted).compute(Signals(z))):
        # Guessing entropy is stored without its constant 1, the formula above likewise.
        np.testing.assert_allclose(values, truth, rtol=1e-12)


def test_msp_and_margin_are_monotone_transforms():
    z = (np.random.default_rng(2).normal(size=(200, 4)) * 3).astype(np.float32)
    p = np.exp(z.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    top = np.sort(p, axis=1)[:, ::-1]
    msp = fit_score("msp", None, FitData(z)).compute(Signals(z))
    np.testing.assert_allclose(1 / (1 + np.exp(-msp)), top[:, 0], rtol=1e-12)
    values = fit_score("margin", None, FitData(z)).compute(Signals(z))
    np.testing.assert_allclose(1 - np.exp(-values), top[:, 0] - top[:, 1], rtol=1e-9)
