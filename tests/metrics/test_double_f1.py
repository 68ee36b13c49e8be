"""DS-F1 against all pairs of thresholds in exact fractions, by both searches."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.metrics import Undefined, counts_at, counts_of, ds_f1, f1, f1_search, f1_surface
from calibration.metrics.compiled import repeated
from calibration.table import ScoreTable

ENGINES = {"numpy": 1, "compiled": 10**15}


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_is_the_maximum_over_all_pairs(engine, data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    if table.weights[table.is_id].sum() == 0:
        with pytest.raises(Undefined, match="no ID rows"):
            ds_f1(table)
        return
    with repeated(ENGINES[engine]):
        found = ds_f1(table)
    best = oracle.best_f1(table)
    assert found.value == float(best)
    rows = oracle.rows(table)
    accepted = oracle.accepted(rows, found.tau_id, found.tau_ood)
    assert oracle.f1(rows, accepted) == best
    if best:
        assert found.tau_id in table.s_id
        assert found.tau_ood in table.s_ood
        assert math.isclose(2 / (1 / found.precision + 1 / found.recall), found.value, rel_tol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_holds_under_extreme_weights(engine, data, tables, oracle):
    table = data.draw(tables(weights="any"))
    if table.weights[table.is_id].sum() == 0:
        return
    with repeated(ENGINES[engine]):
        found = ds_f1(table)
    assert math.isclose(found.value, oracle.best_f1(table), rel_tol=1e-12)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_never_falls_below_a_single_score(data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    if table.weights[table.is_id].sum() == 0:
        return
    for score in ("s_id", "s_ood"):
        single = f1(table, score)
        assert single.value == float(oracle.best_f1(table, score))
        assert ds_f1(table).value >= single.value


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_both_searches_name_the_same_strictest_pair(data, tables, oracle):
    table = data.draw(tables(weights="none", max_size=15))
    if not table.n_id:
        return
    plain = ds_f1(table)
    with repeated(ENGINES["compiled"]):
        assert ds_f1(table) == plain
    if plain.value:
        rows, best = oracle.rows(table), oracle.best_f1(table)
        reaching = [pair[:2] for pair in oracle.pairs(rows) if oracle.f1(rows, pair[2]) == best]
        assert max(reaching, key=lambda pair: (pair[1], pair[0])) == (plain.tau_id, plain.tau_ood)


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_depends_on_the_order_of_scores_alone(data, tables):
    table = data.draw(tables(weights="whole"))
    if table.weights[table.is_id].sum() == 0:
        return
    moved = ScoreTable(**(table.columns() | {"s_id": np.arctan(table.s_id) * 3 - 7, "s_ood": np.exp(3 * table.s_ood)}))
    finite = table.finite
    moved.s_id[~finite] = np.nan
    assert ds_f1(moved).value == ds_f1(table).value


@pytest.mark.parametrize("decimals", [None, 1])
def test_searches_agree_on_thousands_of_rows(mixed, decimals):
    table = mixed(3001, decimals=decimals)
    plain = ds_f1(table)
    with repeated(ENGINES["compiled"]):
        assert ds_f1(table) == plain
    weighted = table.with_prevalence(0.03)
    plain = ds_f1(weighted)
    with repeated(ENGINES["compiled"]):
        assert ds_f1(weighted).value == pytest.approx(plain.value, rel=1e-13)


def test_the_search_gives_up_on_a_table_without_a_correct_row():
    table = ScoreTable.from_columns(s_id=[1.0, 2.0], s_ood=[1.0, 2.0], is_id=[True, False], correct=[False, False])
    found = ds_f1(table)
    assert (found.value, found.precision, found.recall) == (0.0, 0.0, 0.0)
    assert counts_at(table, found.tau_id, found.tau_ood).accepted == 0


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_counts_add_up(data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    tau_id, tau_ood = (data.draw(st.sampled_from([-math.inf, 0.0, 0.5, 2.0, math.inf])) for _ in range(2))
    counts = counts_at(table, tau_id, tau_ood)
    rows = oracle.rows(table)
    accepted = oracle.accepted(rows, tau_id, tau_ood)
    assert counts.accepted == sum(row[4] for row in accepted)
    assert counts.true_accepts == sum(row[4] for row in accepted if row[3])
    assert counts.false_accepts_ood == sum(row[4] for row in accepted if not row[2])
    assert counts.true_accepts + counts.false_rejects == counts.n_id
    if counts.n_id:
        assert counts.f1 == float(oracle.f1(rows, accepted))
        assert counts.recall == counts.true_accepts / counts.n_id
    if counts.accepted:
        assert counts.precision == pytest.approx(1 - counts.risk)
    else:
        assert counts.precision == 0
        with pytest.raises(Undefined):
            _ = counts.risk
    mask = table.finite & (table.s_id >= tau_id) & (table.s_ood >= tau_ood)
    assert counts_of(table, mask) == counts


def test_the_surface_holds_f1_of_its_pairs_and_peaks_below_the_optimum(mixed):
    table = mixed(400, decimals=1)
    surface = f1_surface(table, 21)
    for i in (0, len(surface.tau_id) // 2, -1):
        for j in (0, len(surface.tau_ood) // 3, -1):
            expected = counts_at(table, surface.tau_id[i], surface.tau_ood[j]).f1
            assert surface.f1[i, j] == pytest.approx(expected, rel=1e-14)
    assert surface.f1.max() <= ds_f1(table).value
    stretched = ScoreTable(**(table.columns() | {"s_ood": np.exp(3 * table.s_ood)}))
    np.testing.assert_array_equal(f1_surface(stretched, 21).f1, surface.f1)


def test_the_surface_needs_rows():
    table = ScoreTable.from_columns(s_id=[np.nan], s_ood=[1.0], is_id=[True], correct=[True])
    with pytest.raises(Undefined, match="finite"):
        f1_surface(table)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), constant=st.sampled_from(["s_id", "s_ood"]))
def test_one_sweep_is_enough_where_a_score_never_varies(data, constant, tables, oracle):
    """Neither search over pairs has anything to do; they would be slow, with a step or a leaf for every row."""
    drawn = data.draw(tables(odd=False))
    table = ScoreTable(**(drawn.columns() | {constant: np.zeros(len(drawn))}))
    if not (table.weights[table.is_id] > 0.0).any():
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f1_search, "by_scan", None)
        patch.setattr(f1_search, "by_tree", None)
        found = ds_f1(table)
    assert found.value == pytest.approx(float(oracle.best_f1(table)), abs=1e-12)
    if found.value > 0.0:
        assert counts_at(table, found.tau_id, found.tau_ood).f1 == pytest.approx(found.value, abs=1e-12)


def test_many_rows_with_few_values_are_no_work_for_the_scan(mixed):
    """The scan admits rows one by one in Python: a million of them take seconds, however few the leaves."""
    coarse = mixed(100_000, decimals=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f1_search, "by_scan", None)
        found = ds_f1(coarse)
    assert found.value >= max(f1(coarse, "s_id").value, f1(coarse, "s_ood").value)
