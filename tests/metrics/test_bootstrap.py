"""Resamples and the intervals made of them."""

import numpy as np
import pytest

from calibration.errors import TableError
from calibration.metrics import (
    Undefined,
    accuracy,
    bootstrap,
    compare,
    counts_at,
    ds_f1,
    evaluate,
    failure,
    interval,
    ood,
    resamples,
)
from calibration.table import ScoreTable


def test_resamples_keep_every_stratum_and_follow_the_seed(mixed):
    table = mixed(300, groups=True)
    draws = list(resamples(table, 5, seed=7))
    for weight in draws:
        assert weight[table.is_id].sum() == table.n_id
        for name in ("near/a", "far/b", "far/c"):
            named = table.group == name
            assert weight[named].sum() == named.sum()
        assert (weight == np.rint(weight)).all()
        assert (weight == 0).any()
    for left, right in zip(draws, resamples(table, 5, seed=7), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(draws[0], next(resamples(table, 1, seed=8)))


def test_resamples_multiply_the_weights_of_a_table(mixed):
    table = mixed(100).with_prevalence(0.2)
    weight = next(resamples(table, 1))
    assert weight[~table.is_id].sum() / weight.sum() == pytest.approx(0.2)


def test_a_resample_equals_the_rows_it_stands_for(mixed, oracle):
    table = mixed(200, decimals=1)
    weight = next(resamples(table, 1, seed=3))
    drawn = table.take(np.repeat(np.arange(len(table)), weight.astype(int)))
    assert ds_f1(table.reweighted(weight)) == ds_f1(drawn)
    assert ood(table.reweighted(weight)).auroc == pytest.approx(ood(drawn).auroc, rel=1e-13)


def test_sorting_happens_once(mixed, monkeypatch):
    table = mixed(200)
    ood(table)
    failure(table)
    monkeypatch.setattr(np, "argsort", lambda *_: pytest.fail("a resample was sorted again"))
    found = bootstrap(table, lambda resample: {"ood": ood(resample).auroc, "failure": failure(resample).auroc}, 5)
    assert found["ood"].replicates == 5


def test_intervals_of_a_mean_are_those_of_theory(mixed):
    table = mixed(2000)
    found = interval(table, accuracy, 800, seed=1)
    rate = accuracy(table)
    error = np.sqrt(rate * (1 - rate) / table.n_id)
    assert found.estimate == rate
    assert found.low == pytest.approx(rate - 1.96 * error, abs=0.3 * error)
    assert found.high == pytest.approx(rate + 1.96 * error, abs=0.3 * error)
    narrow = interval(table, accuracy, 800, seed=1, level=0.5)
    assert found.low < narrow.low < narrow.high < found.high


def test_an_optimistic_best_value_is_corrected(mixed):
    """Resamples overrate a maximum over thresholds; the interval must not follow them upwards."""
    table = mixed(300, seed=4)
    found = interval(table, lambda resample: ds_f1(resample).value, 200)
    draws = [ds_f1(table.reweighted(weight)).value for weight in resamples(table, 200)]
    assert np.mean(draws) > found.estimate
    low, high = np.quantile(draws, [0.025, 0.975])
    assert found.low < low
    assert found.high < high


def test_a_comparison_is_paired(mixed):
    table = mixed(600)
    better = ScoreTable(**(table.columns() | {"s_ood": table.s_ood + 0.2 * table.is_id}))

    def auroc(part):
        return ood(part).auroc

    found = compare(better, table, auroc, 200, seed=2)
    alone = [interval(part, auroc, 200, seed=2) for part in (better, table)]
    assert found.difference.estimate == auroc(better) - auroc(table)
    assert found.difference.low > 0
    assert found.share_above == 1.0
    assert found.difference.high - found.difference.low < 0.3 * (alone[0].high - alone[0].low)
    assert alone[1].high > alone[0].low  # unpaired intervals overlap
    same = compare(table, table, auroc, 20)
    assert (same.difference.low, same.difference.high, same.share_above) == (0.0, 0.0, 0.5)


def test_policies_are_compared_on_the_same_resamples(mixed):
    table = mixed(400)

    def statistics(part):
        strict, loose = counts_at(part, 0.8, 1.0), counts_at(part, 0.2, 0.0)
        return {"gain": strict.precision - loose.precision, "loss": strict.recall - loose.recall}

    found = bootstrap(table, statistics, 100)
    assert found["gain"].low > 0 > found["loss"].high


def test_tables_of_other_samples_are_not_compared(mixed):
    table = mixed(50)
    named = ScoreTable(**(table.columns() | {"id": np.arange(50).astype(str)}))
    with pytest.raises(TableError, match="is_id columns differ"):
        compare(table, table.take(slice(1, 50)), accuracy)
    with pytest.raises(TableError, match="id of row 1: '0' and '49'"):
        compare(named, ScoreTable(**(named.columns() | {"id": named.id[::-1]})), accuracy)


def test_resamples_without_a_value_are_left_out():
    table = ScoreTable.from_columns(s_id=[1, 2, 3], s_ood=[1, 2, 3], is_id=[1, 1, 1], correct=[1, 1, 0])
    found = interval(table, lambda part: failure(part).auroc, 50)
    assert 0 < found.replicates < 50
    alone = table.take([0])
    with pytest.raises(Undefined):
        interval(alone, lambda part: failure(part).auroc, 5)


@pytest.mark.parametrize(
    ("options", "message"), [({"n": 0}, "at least 1, not 0"), ({"n": 5, "level": 1.0}, r"between 0 and 1, not 1\.0")]
)
def test_impossible_requests_are_refused(mixed, options, message):
    with pytest.raises(TableError, match=message):
        interval(mixed(10), accuracy, **options)


def test_an_evaluation_holds_intervals_around_its_values(mixed):
    table = mixed(240, groups=True)
    steps = []
    document = evaluate(table, bootstrap=30, seed=5, advance=steps.append)
    assert document["bootstrap"] == {"replicates": 30, "seed": 5, "level": 0.95}
    assert sum(steps) == 4 * 30
    for where in (document, document["groups"]["far/b"]):
        for path in (("ds_f1", "value"), ("ds_aurc", "trapezoid"), ("aurc", "s_id", "plugin"), ("ood", "fpr95")):
            value, found = where, where["intervals"]
            for key in path:
                value, found = value[key], found[key]
            assert found["low"] <= found["high"]
            assert found["low"] - 0.1 < value < found["high"] + 0.1
    assert "tau_id" not in document["intervals"]["ds_f1"]
    assert evaluate(table, bootstrap=30, seed=5) == document
