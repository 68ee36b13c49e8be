"""Inputs at the edge of what a classifier can emit, and fit data that leaves a score nothing to measure."""

import numpy as np
import pytest

from models.errors import ScoreError
from models.scores import FitData, fit_score
from models.scores.alone import GraphScore
from models.scores.checks import Case, _signals, assert_agree, case
from models.scores.objectives import auroc
from models.signals import Head, Signals


def _moved(made: Case, shift: float) -> tuple[FitData, Signals]:
    """The same classifier with a constant added to its logits, which softmax does not notice."""
    head = Head(made.head.weight, made.head.bias + shift, "gemm")
    fit = _signals(np.array(made.fit.features), head)
    return FitData.of(fit, made.labels, head), _signals(np.array(made.rows.features), head)


@pytest.mark.parametrize("classes", [2, 6, 200])
@pytest.mark.parametrize("size", [300.0, 800.0, 1e4, 3e38])
@pytest.mark.parametrize("top", [0, -1])
def test_log_odds_of_far_logits_are_the_same_for_every_top_class(classes, size, top):
    """ONNX Runtime's log-sum-exp loses rows below −745 that come after an infinite first entry."""
    logits = np.full((1, classes), -size, np.float32)
    logits[0, top] = size
    fitted = case(classes=classes, dim=4, fit=2 * classes).fitted("msp")
    rows = Signals(logits)
    expected = 2.0 * np.float64(np.float32(size)) - np.log(classes - 1.0)
    assert fitted.compute(rows) == pytest.approx(expected)
    assert GraphScore(fitted).compute(rows) == pytest.approx(expected)


@pytest.mark.parametrize("spec", ["openmax", "openmax:alpha=2"])
def test_tied_logits_are_revised_in_the_same_order(spec):
    made = case(classes=40, dim=20, fit=800)
    rows = Signals(np.round(made.rows.logits), made.rows.features)
    assert_agree(made.fitted(spec), rows)


@pytest.mark.parametrize("scale", [1e3, 1e6, 1e30])
def test_regret_of_far_logits_is_finite(scale):
    made = case()
    fitted = made.fitted("pnml")
    rows = Signals(np.clip(made.rows.logits * np.float64(scale), -3e38, 3e38).astype(np.float32), made.rows.features)
    assert_agree(fitted, rows)


def test_neighbours_of_rows_without_activation():
    """An inner product cannot tell a bank row of length 0 from one at a right angle; a distance can."""
    bank = np.eye(4, dtype=np.float32)[[0, 1, 2, 0, 1]]
    bank[3:] = 0.0
    rows = Signals(np.zeros((3, 2), np.float32), np.array([[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]], np.float32))
    fit = FitData(np.zeros((5, 2), np.float32), bank)
    for k, expected in ((1, [0, -1, 0]), (2, [0, -1, -1]), (3, [-1, -np.sqrt(2), -1])):
        fitted = fit_score(f"knn:k={k}", None, fit)
        np.testing.assert_allclose(fitted.compute(rows), expected, atol=1e-7)
        np.testing.assert_allclose(GraphScore(fitted).compute(rows), expected, atol=1e-7)


@pytest.mark.parametrize("spec", ["knn", "knn:k=1", "openmax", "pca+project=class"])
def test_a_common_offset_of_the_features_costs_no_digits(spec):
    made = case(fit=600)
    far = np.float32(1e4)
    fit = _signals(np.array(made.fit.features) + far, made.head)
    rows = _signals(np.array(made.rows.features) + far, made.head)
    fitted = fit_score(spec, None, FitData.of(fit, made.labels, made.head))
    np.testing.assert_allclose(GraphScore(fitted).compute(rows), fitted.compute(rows), rtol=1e-5)


def test_neighbours_in_a_narrow_cone_are_brute_force():
    made = case(fit=600)
    fit, rows = (np.array(x.features, np.float64) + 1e4 for x in (made.fit, made.rows))
    fit, rows = np.float32(fit), np.float32(rows)
    fitted = fit_score("knn:k=5", None, FitData(made.fit.logits, fit))
    units = [np.float64(x) / np.linalg.norm(np.float64(x), axis=1, keepdims=True) for x in (rows, fit)]
    expected = -np.sort(np.linalg.norm(units[0][:, None] - units[1][None], axis=2), axis=1)[:, 4]
    graph = GraphScore(fitted).compute(Signals(made.rows.logits, rows))
    np.testing.assert_allclose(graph, expected, rtol=1e-4)


@pytest.mark.parametrize("spec", ["openmax", "neco:times_logit=true"])
@pytest.mark.parametrize("shift", [-20.0, -100.0])
def test_negative_logits_do_not_turn_a_score_round(spec, shift):
    made = case()
    inside = np.arange(len(made.rows)) % 3 != 0
    data, rows = _moved(made, shift)
    fitted = fit_score(spec, None, data)
    scores = fitted.compute(rows)
    assert auroc(scores[inside], scores[~inside]) > 0.55
    assert any("lifted" in note for note in fitted.notes)
    assert_agree(fitted, rows)


@pytest.mark.parametrize("spec", ["pca:variance=1", "pca:dim=20", "kpca:variance=1", "pca:variance=1+project=class"])
def test_a_subspace_of_everything_is_refused(spec):
    with pytest.raises(ScoreError, match=r"^k?pca measures what a subspace leaves out"):
        case(fit=600).fitted(spec)


def test_equal_features_leave_one_direction_out_at_most():
    """No variance to keep: one direction, not all of them, which would leave the graph an empty product."""
    made = case()
    fit = _signals(np.full((60, 20), 1.5, np.float32), made.head)
    assert_agree(fit_score("pca", None, FitData.of(fit, made.labels[:60], made.head)), made.rows)


def test_cosines_of_a_zero_row_in_a_full_subspace_are_zero():
    """What the projection of zero leaves is rounding, and rounding has a direction of its own."""
    made = case(classes=2, dim=2)
    zero = Signals(made.rows.logits, np.zeros_like(made.rows.features))
    fitted = made.fitted("ctm+project=class:variance=1")
    np.testing.assert_array_equal(fitted.compute(zero), 0.0)
    np.testing.assert_array_equal(GraphScore(fitted).compute(zero), 0.0)


def test_one_row_a_class_has_no_spread_within():
    made = case()
    few = FitData.of(Signals(made.fit.logits[:5], made.fit.features[:5]), made.labels[:5], made.head)
    with pytest.raises(ScoreError, match="relative_mahalanobis needs the spread within classes"):
        fit_score("relative_mahalanobis", None, few)


def test_one_class_has_no_background():
    made = case()
    one = made.labels == 1
    data = FitData.of(Signals(made.fit.logits[one], made.fit.features[one]), made.labels[one], made.head)
    with pytest.raises(ScoreError, match=r"relative_mahalanobis compares a class with all classes"):
        fit_score("relative_mahalanobis", None, data)
    assert fit_score("mahalanobis", None, data).notes


@pytest.mark.parametrize("spec", ["fdbd", "pnml"])
def test_features_that_are_all_zero_are_refused(spec):
    made = case()
    data = FitData.of(_signals(np.zeros((60, 20), np.float32), made.head), made.labels[:60], made.head)
    with pytest.raises(ScoreError, match=f"^{spec} "):
        fit_score(spec, None, data)


def test_temperature_needs_a_label_of_the_classifier():
    made = case()
    data = FitData.of(made.fit, np.full(len(made.labels), -1), made.head)
    with pytest.raises(ScoreError, match="no finite row has one in 0…5"):
        fit_score("msp+temperature", None, data)


@pytest.mark.parametrize("spec", ["pca+project", "pca+project:variance=0.8"])
def test_a_projection_without_a_mode_takes_the_default(spec):
    assert case().fitted(spec).spec.params["subspace"] == "global"
