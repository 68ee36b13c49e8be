"""Large tables: what is approximate stays close to what is exact."""

from collections.abc import Callable

import numpy as np
import pytest

from calibration.metrics import evaluate
from calibration.report import affordable_resamples
from calibration.report.measures import measure
from calibration.report.sampling import sample_of_groups, sample_of_kinds
from calibration.table import ScoreTable

Table = Callable[..., ScoreTable]


def test_small_tables_are_evaluated_as_they_are(table: Table) -> None:
    assert measure(table(), 5) == evaluate(table(), bootstrap=5)


def test_values_of_a_large_table_are_exact_but_for_a_grid(table: Table) -> None:
    apart = np.random.default_rng(1).random(42_000) / 100.0  # without ties a grid leaves values of tau_ood out
    data = table(42_000, probabilities=None, s_ood=table(42_000).s_ood + apart)
    found, exact = measure(data, 0), evaluate(data)
    assert found["ds_aurc"]["envelope"] == pytest.approx(exact["ds_aurc"]["envelope"], rel=0.005)
    assert found["ds_aurc"]["envelope"] >= exact["ds_aurc"]["envelope"]
    assert any("approximate" in note for note in found["notes"])
    for key in ("ds_f1", "f1", "aurc", "augrc", "ood", "failure", "accuracy", "one_gate_aurc"):
        assert found[key] == exact[key], key
        assert found["groups"]["near"][key] == exact["groups"]["near"][key]
    assert found.keys() == exact.keys()


def test_intervals_from_fewer_rows_are_as_wide_as_they_should_be(table: Table) -> None:
    """Accuracy is a plain proportion, so the width of its interval is known."""
    data = table(20_000, probabilities=None)
    found = measure(data, 100, seed=3)
    interval, p = found["intervals"]["accuracy"], found["accuracy"]
    width = interval["high"] - interval["low"]
    assert interval["low"] < p < interval["high"]
    assert width == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / data.n_id), rel=0.3)
    assert found["groups"]["near"]["intervals"]["ds_f1"]["value"]["low"] < found["groups"]["near"]["ds_f1"]["value"]
    assert any("of the 20,000 rows" in note for note in found["notes"])


def test_fewer_resamples_where_they_cost_more(table: Table) -> None:
    few, many = table(200), table(30_000, probabilities=None)
    assert affordable_resamples(few) == 200
    assert 25 <= affordable_resamples(many) < 200


def test_samples_keep_shares_and_rare_kinds(table: Table) -> None:
    data = table(20_000, probabilities=None)
    part = data.take(sample_of_groups(data, 1000))
    assert len(part) == pytest.approx(1000, abs=3)
    assert part.n_ood / len(part) == pytest.approx(0.5, abs=0.01)
    correct = data.is_id.copy()
    correct[:60] = False
    rare = table(20_000, probabilities=None, correct=correct, prediction=None, label=None)
    shown = rare.take(sample_of_kinds(rare, 500))
    assert np.count_nonzero(shown.is_id & ~shown.correct) == 50
