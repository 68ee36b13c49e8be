"""AURC estimators, AUGRC, detection metrics and curves against their definitions."""

import math
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from calibration.errors import TableError
from calibration.metrics import (
    ESTIMATORS,
    Undefined,
    augrc,
    aurc,
    eaurc,
    failure,
    ood,
    ood_new_class,
    perfect_aurc,
    prediction_rejection_ratio,
    rank_weight_bias,
    rank_weight_mse,
    rank_weights,
    risk_coverage,
)
from calibration.metrics.harmonic import harmonic_difference, mean_harmonic_gain, mean_log_rank
from calibration.table import ScoreTable


def _judged(table, score, id_only):
    """(score, loss) of each judged row, repeated by weight; None for rows that cannot be accepted."""
    rows = []
    values = getattr(table, score)
    for i in range(len(table)):
        if not id_only or table.is_id[i]:
            value = float(values[i]) if table.finite[i] else None
            rows += [(value, 0 if table.correct[i] else 1)] * int(table.weights[i])
    return rows


def _rank_mean(rows, weight):
    """Mean loss under rank weights, every run of ties sharing the mean weight of its ranks."""
    ranked = sorted(value for value, _ in rows)
    n = len(ranked)
    shares = {}
    for value in set(ranked):
        ranks = [r for r in range(1, n + 1) if ranked[r - 1] == value]
        shares[value] = sum(weight(r, n) for r in ranks) / len(ranks)
    return sum(shares[value] * loss for value, loss in rows) / n


def _curve(rows):
    """Trapezoid over distinct scores, last risk carried to coverage 0."""
    points = []
    for value in sorted({value for value, _ in rows}, reverse=True):
        losses = [loss for other, loss in rows if other >= value]
        points.append((Fraction(len(losses), len(rows)), Fraction(sum(losses), len(losses))))
    area = points[0][0] * points[0][1]
    for (u, r), (v, s) in pairwise(points):
        area += (v - u) * (r + s) / 2
    return area


def _expected(table, score, id_only):
    rows = _judged(table, score, id_only)
    kept = [row for row in rows if row[0] is not None]
    reached = Fraction(len(kept), len(rows))
    if not kept:
        return {"curve": 1, "plugin": 1, "plugin_log": 1, "sele": 0.5}
    harmonic = [Fraction(0)]
    for k in range(1, len(kept) + 1):
        harmonic.append(harmonic[-1] + Fraction(1, k))
    return {
        "curve": reached * _curve(kept) + 1 - reached,
        "plugin": reached * _rank_mean(kept, lambda r, n: harmonic[n] - harmonic[n - r]) + 1 - reached,
        "plugin_log": reached * _rank_mean(kept, lambda r, n: -math.log(1 - r / (n + 1))) + 1 - reached,
        "sele": reached**2 * _rank_mean(kept, lambda r, n: Fraction(r, n)) + (1 - reached**2) / 2,
    }


@given(data=st.data(), score=st.sampled_from(["s_id", "s_ood"]), id_only=st.booleans())
@settings(max_examples=200, deadline=None)
def test_estimators_follow_their_definitions(data, score, id_only, tables):
    table = data.draw(tables(weights="whole"))
    if not _judged(table, score, id_only):
        with pytest.raises(Undefined, match="rows with weight"):
            aurc(table, score, id_only=id_only)
        return
    expected = _expected(table, score, id_only)
    for estimator in ESTIMATORS:
        found = aurc(table, score, estimator, id_only=id_only)
        assert math.isclose(found, expected[estimator], rel_tol=1e-12, abs_tol=1e-14)


@given(data=st.data(), score=st.sampled_from(["s_id", "s_ood"]))
@settings(max_examples=100, deadline=None)
def test_augrc_averages_the_generalised_risk(data, score, tables):
    table = data.draw(tables(weights="whole"))
    rows = _judged(table, score, False)
    if not rows:
        return
    kept = [row for row in rows if row[0] is not None]
    points = [(Fraction(0), Fraction(0))]
    for value in sorted({value for value, _ in kept}, reverse=True):
        losses = [loss for other, loss in kept if other >= value]
        points.append((Fraction(len(losses), len(rows)), Fraction(sum(losses), len(rows))))
    area = (1 - points[-1][0] ** 2) / 2
    for (u, r), (v, s) in pairwise(points):
        area += (v - u) * (r + s) / 2
    assert math.isclose(augrc(table, score), area, rel_tol=1e-13, abs_tol=1e-15)


def test_excess_vanishes_for_a_perfect_ranking():
    n, wrong = 4000, 800
    correct = np.arange(n) < n - wrong
    table = ScoreTable.from_columns(s_id=-np.arange(n), s_ood=np.zeros(n), is_id=np.ones(n, bool), correct=correct)
    assert eaurc(table, "s_id") == pytest.approx(0.0, abs=1e-3)
    assert eaurc(table, "s_id", "plugin") == pytest.approx(0.0, abs=1e-3)
    assert aurc(table, "s_id") == pytest.approx(perfect_aurc(0.2), abs=1e-3)
    assert perfect_aurc(0.0) == 0.0
    assert perfect_aurc(1.0) == 1.0


def test_ties_leave_the_estimate_of_a_random_ranking_alone():
    correct = np.array([1, 0, 1, 1, 0, 1, 1, 1], dtype=bool)
    table = ScoreTable.from_columns(s_id=np.ones(8), s_ood=np.ones(8), is_id=np.ones(8, bool), correct=correct)
    for estimator in ("curve", "plugin"):
        assert aurc(table, "s_id", estimator) == pytest.approx(0.25)


def _binary(table, score, good, among):
    """Labels, scores and weights for scikit-learn, unranked rows below all others."""
    values = np.where(table.finite, getattr(table, score), -1e300)
    held = among & (table.weights > 0)
    return good[held].astype(int), values[held], table.weights[held]


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_detection_agrees_with_scikit_learn(data, tables):
    table = data.draw(tables(weights="whole", max_size=20))
    everything = np.ones(len(table), dtype=bool)
    cases = (
        (failure, "s_id", table.correct, table.is_id),
        (ood, "s_ood", table.is_id, everything),
        (ood_new_class, "s_id", table.is_id, table.correct | ~table.is_id),
    )
    for metric, score, good, among in cases:
        labels, values, weights = _binary(table, score, good, among)
        if len(set(labels.tolist())) < 2:
            with pytest.raises(Undefined):
                metric(table, score)
            continue
        found = metric(table, score)
        precision, inverse = found.ap if metric is failure else found.aupr_in, -values
        err = found.ap_err if metric is failure else found.aupr_out
        options = {"sample_weight": weights}
        assert found.auroc == pytest.approx(sklearn_metrics.roc_auc_score(labels, values, **options), rel=1e-12)
        assert precision == pytest.approx(sklearn_metrics.average_precision_score(labels, values, **options), rel=1e-12)
        assert err == pytest.approx(sklearn_metrics.average_precision_score(1 - labels, inverse, **options), rel=1e-12)
        if metric is not failure:
            fpr, tpr, _ = sklearn_metrics.roc_curve(labels, values, drop_intermediate=False, **options)
            assert found.fpr95 == pytest.approx(fpr[np.argmax(tpr >= 0.95 - 1e-12)], rel=1e-12)


def test_the_new_class_protocol_ignores_id_errors(mixed):
    table = mixed(500)
    right = table.take(table.correct | ~table.is_id)
    for score in ("s_id", "s_ood"):
        assert ood_new_class(table, score) == ood(right, score)
    assert ood_new_class(table, "s_id") != ood(table, "s_id")


def test_rejection_ratio_runs_from_random_to_perfect(mixed):
    table = mixed(500)
    perfect = ScoreTable(**(table.columns() | {"s_id": table.correct.astype(float)}))
    assert prediction_rejection_ratio(perfect) == 1.0
    constant = ScoreTable(**(table.columns() | {"s_id": np.zeros(len(table))}))
    assert prediction_rejection_ratio(constant) == 0.0
    assert 0.0 < prediction_rejection_ratio(table) < 1.0


def test_points_are_read_off_a_curve():
    table = ScoreTable.from_columns(
        s_id=[4, 3, 2, 2, 1], s_ood=[0] * 5, is_id=[1] * 5, correct=[True, False, True, True, False]
    )
    curve = risk_coverage(table, "s_id")
    np.testing.assert_array_equal(curve.threshold, [4, 3, 2, 1])
    np.testing.assert_allclose(curve.coverage, [0.2, 0.4, 0.8, 1.0])
    np.testing.assert_allclose(curve.risk, [0.0, 0.5, 0.25, 0.4])
    np.testing.assert_allclose(curve.generalised_risk, [0.0, 0.2, 0.2, 0.4])
    assert curve.risk_at(0.6) == 0.25
    assert curve.risk_at(1.0) == 0.4
    assert curve.coverage_at(0.25) == 0.8
    assert curve.coverage_at(0.3) == 0.8
    assert curve.coverage_at(0.0) == pytest.approx(0.2)
    wrong = ScoreTable(**(table.columns() | {"correct": np.zeros(5, bool)}))
    assert risk_coverage(wrong, "s_id").coverage_at(0.5) == 0.0


def test_a_coverage_beyond_the_finite_rows_is_undefined():
    table = ScoreTable.from_columns(s_id=[1, np.nan], s_ood=[1, 1], is_id=[1, 1], correct=[1, 1])
    with pytest.raises(Undefined, match=r"coverage of 0\.8"):
        risk_coverage(table, "s_id").risk_at(0.8)


def test_id_only_curves_leave_ood_rows_out(mixed):
    table = mixed(300)
    alone = table.take(table.is_id)
    left, right = risk_coverage(table, "s_id", id_only=True), risk_coverage(alone, "s_id")
    np.testing.assert_allclose(left.risk, right.risk)
    np.testing.assert_allclose(left.coverage, right.coverage)
    assert aurc(table, "s_id", id_only=True) == pytest.approx(aurc(alone, "s_id"))


@pytest.mark.parametrize("above", [0.0, 1e-9, 0.5, 7.0, 31.9, 33.0, 1e4, 1e9])
@pytest.mark.parametrize("run", [1e-9, 0.3, 1.0, 2.0, 1e3, 1e8])
def test_rank_sums_keep_their_digits(above, run):
    with mpmath.workdps(60):
        a, g = mpmath.mpf(above), mpmath.mpf(run)
        difference = mpmath.digamma(a + g + 1) - mpmath.digamma(a + 1)
        gain = 1 - a / g * difference
        log = (mpmath.loggamma(a + g + 1) - mpmath.loggamma(a + 1)) / g
        expected = [float(difference), float(gain), float(log)]
    arguments = np.array([above]), np.array([run])
    found = [float(function(*arguments)[0]) for function in (harmonic_difference, mean_harmonic_gain, mean_log_rank)]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_rank_weights_are_those_of_the_estimators():
    table = ScoreTable.from_columns(
        s_id=np.arange(6.0), s_ood=np.zeros(6), is_id=np.ones(6, bool), correct=[1, 0, 1, 1, 0, 0]
    )
    loss = 1.0 - table.correct
    for estimator in ("plugin", "plugin_log", "sele"):
        assert aurc(table, "s_id", estimator) == pytest.approx(rank_weights(6, estimator) @ loss / 6, rel=1e-13)
    assert rank_weights(6).mean() == pytest.approx(1.0)
    assert rank_weights(6, "plugin_log").mean() < 1.0


@pytest.mark.parametrize("estimator", ["plugin", "plugin_log", "sele"])
def test_bias_and_error_of_rank_weights_match_simulation(estimator):
    rng = np.random.default_rng(3)
    n, beta, rank = 12, 0.6, 8
    weights = rank_weights(n, estimator)
    lower = rng.binomial(n - 1, beta, 400_000)
    assert rank_weight_bias(n, beta, estimator) == pytest.approx(np.mean(weights[lower]) + math.log(1 - beta), abs=5e-3)
    quantile = rng.beta(rank, n + 1 - rank, 400_000)
    squared = (weights[rank - 1] + np.log1p(-quantile)) ** 2
    assert rank_weight_mse(n, rank, estimator) == pytest.approx(squared.mean(), rel=2e-2)


def test_bias_of_the_plugin_weights_fades_with_more_rows():
    biases = [abs(rank_weight_bias(n, 0.9)) for n in (10, 100, 1000)]
    assert biases == sorted(biases, reverse=True)
    assert biases[-1] < 1e-3
    assert rank_weight_mse(50, 40, "plugin_log") >= rank_weight_mse(50, 40)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_weights(0), "at least 1, not 0"),
        (lambda: rank_weights(3, "median"), "'median'; choose plugin, plugin_log or sele"),
        (lambda: rank_weight_bias(3, 1.0), r"below 1, not 1\.0"),
        (lambda: rank_weight_mse(3, 4), "between 1 and 3, not 4"),
    ],
)
def test_impossible_ranks_are_refused(call, message):
    with pytest.raises(TableError, match=message):
        call()


def test_unknown_estimators_are_refused(mixed):
    for metric in (aurc, eaurc):
        with pytest.raises(TableError, match="'area'; choose curve, plugin, plugin_log, sele"):
            metric(mixed(10), "s_id", "area")


@pytest.mark.parametrize("size", [1e-200, 1e-9, 1e200])
def test_detection_does_not_depend_on_the_unit_of_weights(mixed, size):
    table = mixed(60)
    scaled = table.reweighted(np.full(len(table), size))
    assert ood(scaled).auroc == pytest.approx(ood(table).auroc)
    assert failure(scaled).auroc == pytest.approx(failure(table).auroc)
