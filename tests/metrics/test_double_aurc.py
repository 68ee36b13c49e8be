"""DS-AURC against all pairs of thresholds in exact fractions, its conventions and its fall-back."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.errors import TableError
from calibration.metrics import (
    Undefined,
    coverage_compiled,
    double_risk_coverage,
    ds_aurc,
    kernels,
    one_gate_aurc,
    one_gate_risk_coverage,
)
from calibration.metrics import double_aurc as module
from calibration.metrics.compiled import repeated
from calibration.table import ScoreTable

ENGINES = {"numpy": 1, "compiled": 10**15}


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_equals_the_exact_area(engine, data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    if table.weights[table.is_id].sum() == 0:
        with pytest.raises(Undefined, match="no ID rows"):
            ds_aurc(table)
        return
    points = oracle.smallest_risks(table)
    with repeated(ENGINES[engine]):
        curve = double_risk_coverage(table)
        found = {name: ds_aurc(table, name) for name in ("trapezoid", "envelope")}
    assert curve.exact
    np.testing.assert_allclose(curve.coverage, [float(u) for u, _ in points], rtol=1e-14)
    np.testing.assert_allclose(curve.risk, [float(r) for _, r in points], rtol=1e-14)
    assert math.isclose(found["trapezoid"], oracle.trapezoid(points), rel_tol=1e-13, abs_tol=1e-15)
    assert math.isclose(found["envelope"], oracle.envelope(points), rel_tol=1e-13, abs_tol=1e-15)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_tells_coverages_of_any_weights_apart(data, tables, oracle):
    table = data.draw(tables(weights="any"))
    weight = table.weights[table.is_id & (table.weights > 0)]
    if not len(weight) or weight.max() > 1e3 * weight.min():
        return  # coverages below a rounding error of the total are one coverage
    points = oracle.smallest_risks(table)
    assert math.isclose(ds_aurc(table), oracle.trapezoid(points), rel_tol=1e-11, abs_tol=1e-12)
    assert math.isclose(ds_aurc(table, "envelope"), oracle.envelope(points), rel_tol=1e-11, abs_tol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_extreme_weights_of_ood_rows(engine, data, tables, oracle):
    table = data.draw(tables(weights="any"))
    table = table.reweighted(np.where(table.is_id, 1.0, table.weights))
    if not table.n_id:
        return
    with repeated(ENGINES[engine]):
        found = ds_aurc(table)
    assert math.isclose(found, oracle.trapezoid(oracle.smallest_risks(table)), rel_tol=1e-12, abs_tol=1e-14)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_is_never_above_one_gate_under_envelope(data, tables, oracle):
    table = data.draw(tables(weights="whole"))
    if table.weights[table.is_id].sum() == 0:
        return
    for score in ("s_id", "s_ood"):
        points = oracle.smallest_risks(table, score)
        single = one_gate_aurc(table, score, "envelope")
        assert math.isclose(single, oracle.envelope(points), rel_tol=1e-13, abs_tol=1e-15)
        assert math.isclose(one_gate_aurc(table, score), oracle.trapezoid(points), rel_tol=1e-13, abs_tol=1e-15)
        assert ds_aurc(table, "envelope") <= single + 1e-15


def test_the_other_conventions_do_not_bound_tied_scores():
    table = ScoreTable.from_columns(
        s_id=[0.875, 0.125, 0.875], s_ood=[1, 2, 1], is_id=[1, 1, 1], correct=[True, False, True]
    )
    assert ds_aurc(table, "envelope") == one_gate_aurc(table, "s_id", "envelope") == pytest.approx(1 / 9)
    for convention in ("trapezoid", "published"):
        assert ds_aurc(table, convention) > one_gate_aurc(table, "s_id", convention)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_depends_on_the_order_of_scores_alone(data, tables):
    table = data.draw(tables(weights="whole", odd=False))
    if table.weights[table.is_id].sum() == 0:
        return
    moved = ScoreTable(**(table.columns() | {"s_id": np.tanh(table.s_id), "s_ood": np.exp(3 * table.s_ood)}))
    for convention in ("trapezoid", "envelope"):
        assert ds_aurc(moved, convention) == ds_aurc(table, convention)


@pytest.mark.parametrize("decimals", [None, 1])
def test_searches_agree_on_thousands_of_rows(mixed, decimals):
    table = mixed(2500, decimals=decimals)
    plain = double_risk_coverage(table)
    with repeated(ENGINES["compiled"]):
        compiled = double_risk_coverage(table)
    np.testing.assert_array_equal(plain.coverage, compiled.coverage)
    np.testing.assert_array_equal(plain.risk, compiled.risk)


def test_many_uneven_weights_are_rounded_and_say_so(mixed):
    table = mixed(9000, decimals=2)
    rng = np.random.default_rng(5)
    uneven = table.reweighted(rng.uniform(0.5, 1.5, len(table)))
    plain = double_risk_coverage(uneven)
    with repeated(ENGINES["compiled"]):
        compiled = double_risk_coverage(uneven)
    assert not plain.exact
    assert not compiled.exact
    np.testing.assert_allclose(plain.risk, compiled.risk, rtol=1e-9)
    assert ds_aurc(uneven, "envelope") == pytest.approx(ds_aurc(table, "envelope"), abs=0.01)


def test_a_grid_of_tau_ood_is_close_from_above_and_says_so(mixed, monkeypatch):
    table = mixed(3000)
    exact = double_risk_coverage(table)
    thinned = double_risk_coverage(table, grid=64)
    assert exact.exact
    assert not thinned.exact
    best = np.minimum.accumulate(exact.risk[::-1])[::-1]
    reached = np.searchsorted(exact.coverage, thinned.coverage * (1 - 1e-12))
    assert (thinned.risk >= best[reached] - 1e-12).all()
    monkeypatch.setattr(module, "EXACT_WORK", 1e6)
    monkeypatch.setattr(module, "GRID", 512)
    assert ds_aurc(table) == pytest.approx(module.trapezoid(exact), abs=2e-3)


def test_unattainable_coverage_has_risk_one():
    table = ScoreTable.from_columns(
        s_id=[1.0, np.nan, 0.5, np.inf], s_ood=[1.0, 1.0, 2.0, 1.0], is_id=[1, 1, 1, 1], correct=[1, 1, 1, 1]
    )
    for convention in ("trapezoid", "envelope"):
        assert ds_aurc(table, convention) == 0.5
    assert double_risk_coverage(table).coverage.max() == 0.5


def test_no_finite_id_row_leaves_no_curve():
    table = ScoreTable.from_columns(s_id=[np.nan, 1.0], s_ood=[1.0, 1.0], is_id=[1, 0], correct=[1, 0])
    assert len(double_risk_coverage(table).coverage) == 0
    assert ds_aurc(table) == ds_aurc(table, "envelope") == 1.0


def test_an_unknown_convention_is_refused(mixed):
    for call in (ds_aurc, lambda table, name: one_gate_aurc(table, "s_id", name)):
        with pytest.raises(TableError, match="'median'; choose trapezoid, envelope, published"):
            call(mixed(10), "median")
    with pytest.raises(TableError, match="'s_x'; choose s_id or s_ood"):
        one_gate_risk_coverage(mixed(10), "s_x")


def _published(table: ScoreTable, double: bool, score: str = "s_ood") -> float:
    """The published procedure written out: thresholds in a loop, bins by masks."""
    thresholds, edges = np.linspace(0, 1, 1001), np.linspace(0, 1, 101)
    values = getattr(table, score)
    span = values.max() - values.min()
    normal = (values - values.min()) / span if span else np.zeros(len(table))
    coverage, risk = [], []
    for tau in thresholds:
        passed = normal >= tau
        accepted = passed & (table.s_id >= thresholds[:, None]) if double else passed[None, :]
        weight = accepted * table.weights
        total = weight.sum(axis=1)
        right = (weight * table.correct).sum(axis=1)
        with np.errstate(invalid="ignore"):
            risk.append(np.where(total > 0, 1 - right / total, 1.0))
        coverage.append((weight * table.is_id).sum(axis=1) / table.weights[table.is_id].sum())
    coverages, risks = np.concatenate(coverage), np.concatenate(risk)
    filled = []
    for low, high in itertools.pairwise(edges):
        inside = (coverages >= low) & (coverages < high)
        filled.append(risks[inside].min() if inside.any() else None)
    for index in range(99, -1, -1):
        if filled[index] is None:
            filled[index] = filled[index + 1] if index < 99 else 1.0
    return float(np.trapezoid(filled, (edges[1:] + edges[:-1]) / 2))


@pytest.mark.parametrize("case", ["plain", "tied", "weighted", "constant"])
def test_published_repeats_the_grid_and_the_bins(mixed, case):
    table = mixed(91, decimals=1 if case == "tied" else None)
    if case == "weighted":
        table = table.with_prevalence(0.2)
    if case == "constant":
        table = ScoreTable(**(table.columns() | {"s_ood": np.ones(len(table))}))
    assert ds_aurc(table, "published") == pytest.approx(_published(table, True), rel=1e-12)
    for score in ("s_id", "s_ood"):
        assert one_gate_aurc(table, score, "published") == pytest.approx(_published(table, False, score), rel=1e-12)


def test_published_alone_moves_with_the_scale_of_a_score(mixed):
    table = mixed(2000)
    moved = ScoreTable(**(table.columns() | {"s_ood": np.exp(3 * table.s_ood)}))
    assert ds_aurc(moved, "published") > ds_aurc(table, "published") + 0.01
    assert ds_aurc(moved) == ds_aurc(table)


@pytest.mark.parametrize(("fractional", "blocks"), [(False, 16), (True, 1)])
def test_a_block_is_searched_only_where_it_is_worth_its_cells(monkeypatch, fractional, blocks):
    """Weights without a common unit have a million cells, too many for sixteen blocks of a small table."""
    calls = []
    whole = kernels.over_grid
    monkeypatch.setattr(kernels, "over_grid", lambda *rows: calls.append(1) or whole(*rows))
    rng = np.random.default_rng(0)
    table = ScoreTable.from_columns(
        s_id=rng.normal(size=800),
        s_ood=rng.normal(size=800),
        is_id=np.arange(800) < 500,
        correct=np.arange(800) % 3 > 0,
        weight=rng.exponential(size=800) if fractional else None,
    )
    found = double_risk_coverage(table, grid=128)
    assert len(calls) == blocks
    monkeypatch.setattr(coverage_compiled, "_BLOCKS", 5)
    monkeypatch.setattr(coverage_compiled, "_WORTH_A_BLOCK", 1e-9)
    again = double_risk_coverage(table, grid=128)
    np.testing.assert_array_equal(found.coverage, again.coverage)
    np.testing.assert_array_equal(found.risk, again.risk)


@pytest.mark.parametrize("score", ["s_id", "s_ood"])
def test_one_gate_with_weights_too_small_to_add_up(score):
    """A weight that vanishes beside the sum above it is a threshold to one kind of row and none to another."""
    table = ScoreTable.from_columns(
        s_id=[1, 2, 3], s_ood=[1, 3, 2], is_id=[1, 1, 0], correct=[1, 0, 0], weight=[1e-9, 1e9, 1]
    )
    for convention in ("trapezoid", "envelope"):
        assert one_gate_aurc(table, score, convention) == pytest.approx(1.0)
        assert ds_aurc(table, convention) == pytest.approx(1.0)


def test_a_grid_needs_a_value(mixed):
    with pytest.raises(TableError, match="A grid takes at least 1 value of tau_ood, not 0"):
        double_risk_coverage(mixed(50), grid=0)
