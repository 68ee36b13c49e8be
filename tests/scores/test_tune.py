"""Tuning: objectives against slow definitions, what is tried, what wins, what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import ScoreError
from models.scores import fit_score
from models.scores.checks import case
from models.scores.objectives import augrc, auroc
from models.scores.tune import tune
from models.signals import Signals

CASE = case(classes=4, dim=16, fit=200, rows=150, seed=5)
INSIDE = np.arange(150) % 3 > 0
VAL_ID = Signals(CASE.rows.logits[INSIDE], CASE.rows.features[INSIDE])
VAL_OOD = Signals(CASE.rows.logits[~INSIDE], CASE.rows.features[~INSIDE])
LABELS = np.where(np.arange(INSIDE.sum()) % 5, VAL_ID.logits.argmax(axis=1), 0)

few_values = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12)


@given(few_values, few_values)
def test_auroc_counts_pairs(positive, negative):
    pairs = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
    assert auroc(np.array(positive), np.array(negative)) == pytest.approx(np.mean(pairs))


def test_auroc_ranks_nan_last():
    assert auroc(np.array([np.nan, 2.0]), np.array([1.0])) == 0.5
    assert auroc(np.array([1.0]), np.array([np.nan])) == 1.0


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=10))
def test_augrc_is_the_mean_over_orders_of_ties(rows):
    """The area under accepted-and-wrong over all rows, between coverages 0 and 1, ties in random order."""
    score = np.array([s for s, _ in rows], dtype=float)
    correct = np.array([c for _, c in rows])
    n, rng, areas = len(rows), np.random.default_rng(0), []
    for _ in range(400):
        order = np.lexsort((rng.random(n), -score))
        wrong = np.concatenate([[0], np.cumsum(~correct[order])]) / n
        areas.append(np.trapezoid(wrong, np.linspace(0, 1, n + 1)))
    assert augrc(score, correct) == pytest.approx(np.mean(areas), abs=0.03)


def test_every_open_setting_is_tried_and_the_best_wins():
    seen = []
    tuned = tune("knn", CASE.data(), VAL_ID, LABELS, VAL_OOD, "s_ood", lambda done, total: seen.append((done, total)))
    assert tuned.objective == "AUROC"
    assert [t.spec for t in tuned.trials] == ["knn", *(f"knn:k={k}" for k in (1, 5, 10, 20, 50, 100, 200))]
    assert seen == [(i, 8) for i in range(1, 9)]
    best = max(t.value for t in tuned.trials)
    fitted = fit_score(tuned.spec, None, CASE.data())
    assert auroc(fitted.compute(VAL_ID), fitted.compute(VAL_OOD)) == pytest.approx(best)
    assert str(tuned.spec) == tuned.record()["best"]


def test_what_was_given_stays_and_what_cannot_be_fitted_is_recorded():
    tuned = tune("knn:bank=60", CASE.data(), VAL_ID, LABELS, VAL_OOD, "s_ood")
    assert tuned.spec.params["bank"] == 60
    problems = {t.spec: t.problem for t in tuned.trials if t.problem}
    assert set(problems) == {"knn:bank=60,k=100", "knn:bank=60,k=200"}
    assert "at most 60" in problems["knn:bank=60,k=100"]
    assert [t.spec for t in tune("knn:k=3", CASE.data(), VAL_ID, LABELS, VAL_OOD).trials] == ["knn:k=3"]


def test_s_id_minimises_augrc():
    tuned = tune("gen", CASE.data(), VAL_ID, LABELS, None, "s_id")
    assert tuned.objective == "AUGRC"
    correct = VAL_ID.logits.argmax(axis=1) == LABELS
    values = [t.value for t in tuned.trials]
    fitted = fit_score(tuned.spec, None, CASE.data())
    assert augrc(fitted.compute(VAL_ID), correct) == pytest.approx(min(values))


def test_shares_of_features_become_dimensions_and_wrappers_are_tuned_too():
    tuned = tune("vim", CASE.data(), VAL_ID, LABELS, VAL_OOD)
    assert [t.spec for t in tuned.trials] == ["vim", *(f"vim:dim={d}" for d in (1, 4, 8, 12))]
    tuned = tune("max_logit+project=global", CASE.data(), VAL_ID, LABELS, VAL_OOD)
    assert len(tuned.trials) == 5
    assert tuned.spec.wrappers[0].id == "project"


def test_a_temperature_is_fitted_on_the_validation_labels():
    tuned = tune("energy:T=1.0+temperature", CASE.data(), VAL_ID, LABELS, VAL_OOD)
    direct = fit_score("energy+temperature", None, CASE.data(), validation=None)
    assert tuned.spec.wrappers[0].params["T"] != direct.wrappers[0].params.T


def test_what_tuning_needs():
    with pytest.raises(ScoreError, match="out-of-distribution validation data"):
        tune("knn", CASE.data(), VAL_ID, LABELS, None, "s_ood")
    with pytest.raises(ScoreError, match="labelled validation data"):
        tune("gen", CASE.data(), VAL_ID, None, None, "s_id")
    with pytest.raises(ScoreError, match="some wrong predictions"):
        tune("gen", CASE.data(), VAL_ID, VAL_ID.logits.argmax(axis=1), None, "s_id")
    with pytest.raises(ScoreError, match="No setting of knn could be fitted: knn's parameter k"):
        tune("knn:k=999", CASE.data(), VAL_ID, LABELS, VAL_OOD)
