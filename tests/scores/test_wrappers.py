"""Temperature and projection filtering against their plain formulas."""

import numpy as np
import pytest

from models.errors import ScoreError
from models.scores import FitBatch, FitData, fit_score
from models.scores.checks import case
from models.scores.subspaces import fit_classes
from models.signals import Signals

CASE = case(classes=4, dim=10, fit=160, rows=50, seed=11)
H, Y = np.array(CASE.fit.features, dtype=np.float64), CASE.labels
X, ZX = np.array(CASE.rows.features, dtype=np.float64), np.array(CASE.rows.logits, dtype=np.float64)
W, B = CASE.head.weight, CASE.head.bias


def score(spec):
    return CASE.fitted(spec).compute(CASE.rows)


def energy(z):
    return np.log(np.exp(z).sum(axis=-1))


def logits(h):
    return h @ W.T + B


def directions(rows, count):
    """The leading principal directions by SVD, as columns."""
    return np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:count].T


def global_projection(h, count=3):
    basis = directions(H, count)
    return (h - H.mean(axis=0)) @ basis @ basis.T + H.mean(axis=0)


def class_projections(h, count=3):
    """[N, C, D] of ĥᶜ."""
    projected = []
    for c in range(4):
        rows = H[c == Y]
        basis = directions(rows, count)
        projected.append((h - rows.mean(axis=0)) @ basis @ basis.T + rows.mean(axis=0))
    return np.stack(projected, axis=1)


def cosine(a, b):
    return np.sum(a * b, axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def test_temperature_minimises_the_likelihood():
    from scipy.optimize import minimize_scalar

    z = np.array(CASE.fit.logits, dtype=np.float64)

    def nll(log_t):
        scaled = z / np.exp(log_t)
        return -np.mean(scaled[np.arange(len(z)), noisy] - energy(scaled))

    rng = np.random.default_rng(0)
    noisy = np.where(rng.random(len(Y)) < 0.3, rng.integers(4, size=len(Y)), Y)
    fitted = fit_score("energy+temperature", None, FitData.of(CASE.fit, noisy, CASE.head))
    expected = float(np.exp(minimize_scalar(nll, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10}).x))
    assert pytest.approx(expected, rel=1e-5) == fitted.wrappers[0].params.T
    np.testing.assert_allclose(fitted.compute(CASE.rows), energy(ZX / expected), rtol=1e-5)
    assert "fit data" in fitted.notes[0]


def test_temperature_prefers_validation_labels():
    rng = np.random.default_rng(1)
    validation = FitData.of(CASE.rows, rng.integers(4, size=len(CASE.rows)))
    fitted = fit_score("msp+temperature", None, CASE.data(), validation=validation)
    assert fitted.wrappers[0].params.T > 2, "random labels call for a high temperature"
    assert not fitted.notes


def test_temperature_refuses_what_no_temperature_fits():
    labels = CASE.fit.logits.argmax(axis=1)
    with pytest.raises(ScoreError, match="without a single error"):
        fit_score("msp+temperature", None, FitData.of(CASE.fit, labels))
    with pytest.raises(ScoreError, match="needs labels"):
        fit_score("msp+temperature", None, FitData.of(CASE.fit))
    with pytest.raises(ScoreError, match="mahalanobis reads features only"):
        fit_score("mahalanobis+temperature=2", None, CASE.data())


def test_temperature_reaches_the_head_of_shaped_energies():
    clipped = np.minimum(X, np.quantile(H, 0.9))
    np.testing.assert_allclose(score("react+temperature=2.0"), energy(logits(clipped) / 2), rtol=1e-9)


@pytest.mark.parametrize(
    ("mode", "projected"),
    [
        ("global", lambda: logits(global_projection(X))),
        ("class", lambda: np.einsum("ncd,cd->nc", class_projections(X), W) + B),
        ("class_pred", lambda: logits(class_projections(X)[np.arange(len(X)), ZX.argmax(axis=1)])),
        ("class_avg", lambda: logits(class_projections(X).mean(axis=1))),
    ],
)
def test_logit_scores_read_projected_logits(mode, projected):
    z = projected()
    np.testing.assert_allclose(score(f"energy+project={mode}:dim=3"), energy(z), rtol=1e-8)
    np.testing.assert_allclose(score(f"max_logit+project={mode}:dim=3"), z.max(axis=1), rtol=1e-8)
    p = np.exp(z - energy(z)[:, None])
    np.testing.assert_allclose(1 / (1 + np.exp(-score(f"msp+project={mode}:dim=3"))), p.max(axis=1), rtol=1e-8)


def test_prototype_cosines_of_class_projections():
    means = np.stack([H[c == Y].mean(axis=0) for c in range(4)])
    for id, table in (("ctm", W), ("ctm_mean", means)):
        expected = cosine(class_projections(X), table).max(axis=1)
        np.testing.assert_allclose(score(f"{id}+project=class:dim=3"), expected, rtol=1e-8)
        expected = cosine(global_projection(X)[:, None], table).max(axis=1)
        np.testing.assert_allclose(score(f"{id}+project=global:dim=3"), expected, rtol=1e-8)


def test_reconstruction_errors_of_class_subspaces():
    errors = np.linalg.norm(X[:, None] - class_projections(X), axis=2) / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(score("pca+project=class:dim=3"), -errors.min(axis=1), rtol=1e-7)
    predicted = errors[np.arange(len(X)), ZX.argmax(axis=1)]
    np.testing.assert_allclose(score("pca+project=class_pred:dim=3"), -predicted, rtol=1e-8)


def test_feature_scores_are_fitted_on_projected_features():
    fit = class_projections(H)[np.arange(len(H)), np.array(CASE.fit.logits).argmax(axis=1)]
    rows = class_projections(X)[np.arange(len(X)), ZX.argmax(axis=1)]
    expected = fit_score("knn:k=5", None, FitData(CASE.fit.logits, fit)).compute(Signals(CASE.rows.logits, rows))
    np.testing.assert_allclose(score("knn:k=5+project=class_pred:dim=3"), expected, rtol=1e-5, atol=1e-6)


def test_projection_keeps_the_share_of_variance():
    fitted = CASE.fitted("energy+project=global:variance=0.6")
    kept = fitted.wrappers[0].params.dim
    variances = np.linalg.svd(H - H.mean(axis=0), compute_uv=False) ** 2
    share = np.cumsum(variances) / variances.sum()
    assert share[kept - 1] >= 0.6
    assert kept == 1 or share[kept - 2] < 0.6


def test_class_subspaces_in_several_passes_are_the_same(monkeypatch):
    whole = fit_classes(CASE.data(), 0.9)
    monkeypatch.setattr("models.scores.subspaces.SCATTER_BYTES", 8 * 10**2)
    parts = fit_classes(CASE.data(), 0.9)
    np.testing.assert_array_equal(parts.means, whole.means)
    np.testing.assert_allclose(np.abs(parts.bases), np.abs(whole.bases), atol=1e-9)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("vim+project=global", "'global' is not defined for vim: defined for it are none"),
        ("knn:k=5+project=class", "'class' is not defined for knn: defined for it are class_avg, class_pred, global"),
        ("pca+project=class_avg", "pca's parameter subspace should be 'global', 'class' or 'class_pred'"),
        ("msp+project=sideways", "project's parameter mode should be 'global'"),
        ("msp+project=global+project=class", "given twice"),
        ("msp+tempreature", "no wrapper 'tempreature': the wrappers are project, temperature"),
    ],
)
def test_undefined_combinations_say_what_is_defined(spec, message):
    with pytest.raises(ScoreError, match=message):
        CASE.fitted(spec)


def test_projection_needs_what_it_projects_with():
    with pytest.raises(ScoreError, match="need labels"):
        fit_score("energy+project=class", None, FitData.of(CASE.fit, None, CASE.head))
    with pytest.raises(ScoreError, match="head"):
        fit_score("energy+project=global", None, FitData.of(CASE.fit, Y))
    with pytest.raises(ScoreError, match="penultimate features"):
        fit_score("energy+project=global", None, FitData(CASE.fit.logits))


def test_a_graph_too_large_is_refused(monkeypatch):
    monkeypatch.setattr("models.scores.subspaces.BASES_BYTES", 1000)
    with pytest.raises(ScoreError, match="lower `variance` or set `dim`"):
        CASE.fitted("energy+project=class_pred")


def test_temperature_acts_after_projection_however_written():
    one, other = (
        score("energy+temperature=2.0+project=global:dim=3"),
        score("energy+project=global:dim=3+temperature=2.0"),
    )
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, energy(logits(global_projection(X)) / 2), rtol=1e-8)


def test_streamed_batches_may_lack_a_class():
    order = np.argsort(Y, kind="stable")
    parts = np.array_split(order, 9)
    features = np.array(CASE.fit.features)
    stream = FitData.stream(lambda: [FitBatch(CASE.fit.logits[p], features[p], Y[p]) for p in parts], CASE.head)
    np.testing.assert_allclose(
        fit_score("energy+project=class", None, stream).compute(CASE.rows), score("energy+project=class"), rtol=1e-8
    )


@pytest.mark.parametrize("mode", ["global", "class_pred", "class_avg"])
def test_feature_scores_are_projected_without_a_head(mode):
    headless = fit_score(f"knn:k=5+project={mode}", None, FitData.of(CASE.fit, Y)).compute(CASE.rows)
    np.testing.assert_array_equal(headless, score(f"knn:k=5+project={mode}"))
