"""The whole document: its shape, weights as repetitions, groups, nulls with reasons."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import calibration.metrics as public
from calibration.errors import TableError
from calibration.metrics import Undefined, accuracy, brier, ds_f1, ece, evaluate, group_tables, nll, reliability
from calibration.table import ScoreTable

AURC = {"curve", "plugin", "plugin_log", "sele"}
SHAPE = {
    "n_id": None,
    "n_ood": None,
    "accuracy": None,
    "ds_f1": {"value", "tau_id", "tau_ood", "precision", "recall"},
    "f1": {"s_id", "s_ood"},
    "ds_aurc": {"trapezoid", "envelope", "published"},
    "aurc": {"s_id", "s_ood", "id_only"},
    "eaurc": {"s_id", "s_ood", "id_only"},
    "augrc": {"s_id", "s_ood"},
    "failure": {"auroc", "ap", "ap_err"},
    "ood": {"auroc", "aupr_in", "aupr_out", "fpr95"},
    "groups": set(),
    "intervals": set(),
    "undefined": None,
}


def _metrics(document):
    """What must not depend on whether a row is repeated or weighted."""
    apart = ("n_id", "n_ood", "n_not_finite", "notes", "undefined")
    return {key: value for key, value in document.items() if key not in apart}


def _leaves(document, path=""):
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield path + key, value


def test_the_public_names_are_all_there():
    assert sorted(public.__all__) == sorted(set(public.__all__))
    assert all(hasattr(public, name) for name in public.__all__)


def test_the_document_has_the_promised_keys(mixed):
    document = evaluate(mixed(200))
    for key, inner in SHAPE.items():
        assert key in document
        if inner is not None:
            assert set(document[key]) == inner
    assert all(set(document["f1"][score]) == {"value", "tau"} for score in ("s_id", "s_ood"))
    assert all(set(document[name][score]) == AURC for name in ("aurc", "eaurc") for score in SHAPE["aurc"])
    assert document["n_id"] == document["n_ood"] == 100
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_weights_are_repetitions(data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    weighted, repeated = evaluate(table), evaluate(oracle.repeated(table))
    assert oracle.close(_metrics(weighted), _metrics(repeated))
    assert set(weighted["undefined"]) == set(repeated["undefined"])


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_null_has_a_reason_and_nothing_else_has(data, tables):
    document = evaluate(data.draw(tables()))
    nulls = {path for path, value in _leaves(document) if value is None} - {"prevalence", "bootstrap"}
    assert nulls == set(document["undefined"])
    assert all(math.isfinite(value) for _, value in _leaves(document) if isinstance(value, float))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_order_of_rows_is_of_no_account(data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    shuffled = table.take(np.array(data.draw(st.permutations(range(len(table)))), dtype=int))
    assert oracle.close(_metrics(evaluate(shuffled)), _metrics(evaluate(table)))


def test_all_but_the_published_metrics_ignore_the_scale_of_scores(mixed, oracle):
    table = mixed(400, decimals=1)
    moved = ScoreTable(**(table.columns() | {"s_id": np.expm1(table.s_id), "s_ood": np.exp(3 * table.s_ood)}))
    left, right = (dict(_leaves(_metrics(evaluate(part)))) for part in (table, moved))
    differing = {path for path in left if left[path] != right[path]}
    assert all("tau" in path or "published" in path for path in differing)


def test_prevalence_weighs_ood_everywhere(mixed, oracle):
    table = mixed(900, groups=True)
    document = evaluate(table, prevalence=0.1)
    weighted = table.with_prevalence(0.1)
    assert document["prevalence"] == 0.1
    assert document["ds_f1"]["value"] == ds_f1(weighted).value
    assert document["ds_f1"]["value"] > evaluate(table)["ds_f1"]["value"]
    near = group_tables(table)["near/a"].with_prevalence(0.1)
    assert document["groups"]["near/a"]["ds_f1"]["value"] == ds_f1(near).value
    plain = evaluate(table)
    assert document["ood"]["auroc"] == pytest.approx(plain["ood"]["auroc"])  # a rank statistic between two classes
    with pytest.raises(TableError, match="prevalence"):
        evaluate(table, prevalence=1.5)


def test_groups_join_all_id_rows_and_are_averaged_by_prefix(mixed):
    table = mixed(900, groups=True)
    document = evaluate(table)
    assert set(document["groups"]) == {"near/a", "far/b", "far/c"}
    assert set(document["averages"]) == {"near", "far", "all"}
    for name, part in document["groups"].items():
        alone = table.take(table.is_id | (table.group == name))
        assert part["n_id"] == 450
        assert part["ds_f1"]["value"] == ds_f1(alone).value
    mean = np.mean([document["groups"][name]["ds_aurc"]["trapezoid"] for name in ("far/b", "far/c")])
    assert document["averages"]["far"]["ds_aurc"]["trapezoid"] == pytest.approx(mean)
    assert "tau_id" not in document["averages"]["far"]["ds_f1"]


def test_groups_of_id_rows():
    columns = {"s_id": np.arange(6.0), "s_ood": np.arange(6.0), "correct": [1, 0, 1, 1, 0, 0]}
    is_id = [True, True, True, True, False, False]
    shared = ScoreTable.from_columns(**columns, is_id=is_id, group=["a", "a", "b", "", "a", "c"])
    sizes = {name: (part.n_id, part.n_ood) for name, part in group_tables(shared).items()}
    assert sizes == {"a": (2, 1), "b": (1, 0), "c": (4, 1)}
    labelled = ScoreTable.from_columns(**columns, is_id=is_id, group=["test"] * 4 + ["far"] * 2)
    assert set(group_tables(labelled)) == {"far"}
    document = evaluate(shared, prevalence=0.5)
    assert document["groups"]["b"]["ood"]["auroc"] is None
    assert document["groups"]["b"]["undefined"]["ood.auroc"] == "the table has no OOD rows with weight"
    assert document["averages"]["all"]["ood"]["auroc"] is None


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ({"is_id": [False, False], "correct": [0, 0]}, {"ds_f1.value": "no ID rows", "failure.auroc": "no ID rows"}),
        ({"is_id": [True, True], "correct": [1, 1]}, {"ood.auroc": "no OOD rows", "failure.ap": "is correct"}),
        ({"is_id": [True, True], "correct": [0, 0]}, {"ds_f1.tau_id": "accepts a correct", "failure.ap": "is wrong"}),
        ({"is_id": [], "correct": [], "s": []}, {"accuracy": "no ID rows", "aurc.s_id.curve": "no rows"}),
    ],
)
def test_reasons_say_what_is_missing(rows, expected):
    scores = rows.pop("s", [0.5, 0.25])
    table = ScoreTable.from_columns(s_id=np.array(scores), s_ood=np.array(scores), **rows)
    undefined = evaluate(table, bootstrap=3)["undefined"]
    for path, reason in expected.items():
        assert reason in undefined[path]


def test_notes_tell_what_to_mind(mixed):
    table = mixed(300)
    assert evaluate(table)["notes"] == []
    logits = ScoreTable(**(table.columns() | {"s_id": np.where(np.arange(300) == 3, np.nan, 5 * table.s_id)}))
    uneven = logits.reweighted(np.random.default_rng(0).uniform(0.5, 2, 300))
    notes = evaluate(uneven)["notes"]
    assert any("1 of 300 rows" in note for note in notes)
    assert any("published" in note for note in notes)
    assert any("no common unit" in note for note in notes)


def test_probability_metrics_against_plain_arithmetic():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.4], [0.2, 0.2, 0.6]])
    label = np.array([0, 2, 2, -1])
    table = ScoreTable.from_columns(
        s_id=[1, 2, 3, 4], s_ood=[1, 2, 3, 4], is_id=[1, 1, 1, 0], prediction=[0, 1, 2, 2], label=label,
        probabilities=probabilities, weight=[1, 2, 1, 5],
    )  # fmt: skip
    of_label = [0.7, 0.4, 0.4]
    assert nll(table) == pytest.approx(-(math.log(0.7) + 2 * math.log(0.4) + math.log(0.4)) / 4)
    onehot = np.eye(3)[[0, 2, 2]]
    distances = ((probabilities[:3] - onehot) ** 2).sum(axis=1)
    assert brier(table) == pytest.approx(np.average(distances, weights=[1, 2, 1]))
    assert accuracy(table) == 0.5
    assert ece(table) == pytest.approx((abs(0.7 - 1) + 2 * abs(0.5 - 0) + abs(0.4 - 1)) / 4)
    assert of_label == [0.7, 0.4, 0.4]
    document = evaluate(table)
    assert document["probabilities"] == {"nll": nll(table), "brier": brier(table), "ece": ece(table)}
    bins = reliability(table, 2)
    assert bins.weight.tolist() == [3.0, 1.0]
    assert bins.accuracy[1] == 1.0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"probabilities": None}, "no probabilities"),
        ({"label": None, "prediction": None}, "no label column"),
        ({"label": np.array([5, 1])}, "class numbers from 0 to 1"),
        ({"label": np.array(["cat", "dog"])}, "class numbers from 0 to 1"),
        ({"label": np.array([1, 1])}, "probability 0 for its label"),
    ],
)
def test_probability_metrics_say_why_they_are_undefined(change, reason):
    columns = {
        "s_id": np.ones(2), "s_ood": np.ones(2), "is_id": np.ones(2, bool), "correct": np.ones(2, bool),
        "label": np.array([0, 1]), "probabilities": np.array([[1.0, 0.0], [0.5, 0.5]]),
    }  # fmt: skip
    table = ScoreTable(**(columns | change))
    with pytest.raises(Undefined, match=reason):
        nll(table)
    assert reason in evaluate(table)["undefined"]["probabilities.nll"]


def test_a_grid_stands_in_for_every_tau_ood(mixed):
    table = mixed(400)
    exact, coarse = evaluate(table), evaluate(table, grid=8)
    assert coarse["ds_aurc"]["envelope"] >= exact["ds_aurc"]["envelope"]
    assert any("approximate" in note for note in coarse["notes"])
    assert not any("approximate" in note for note in exact["notes"])
    assert {k: v for k, v in coarse.items() if k in ("ds_f1", "aurc", "ood")} == {
        k: v for k, v in exact.items() if k in ("ds_f1", "aurc", "ood")
    }


def test_weights_that_make_few_rows_are_noted(mixed):
    table = mixed(200)
    document = evaluate(table.reweighted(np.full(200, 1.0 / 200)))
    assert any("add up to 1 for 200 rows" in note for note in document["notes"])
    assert not any("add up to" in note for note in evaluate(table)["notes"])
    assert not any("add up to" in note for note in evaluate(table, prevalence=0.05)["notes"])
