"""The prevalence budget: the formula, its bounds and what it promises."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.binomial import lower_bound, upper_bound
from calibration.certify import CURVE, largest_prevalence, mixed_risk, prevalence_budget
from calibration.resample import accepted_by
from calibration.table import ScoreTable

rates = st.floats(0.01, 0.99)


@given(c=rates, r=rates, a=rates, risk=st.floats(0.01, 0.9))
def test_the_budget_is_where_the_risk_reaches_the_limit(c: float, r: float, a: float, risk: float) -> None:
    pi = largest_prevalence(risk, c, r, a)
    if pi is None:
        assert mixed_risk(0.0, c, r, a) == pytest.approx(r)
        assert r > risk
    else:
        assert mixed_risk(pi, c, r, a) == pytest.approx(risk, rel=1e-6)
        assert mixed_risk(min(1.0, pi + 1e-3), c, r, a) >= risk


@given(c=rates, r=rates, a=rates, pi=rates, more=st.floats(0.0, 0.5))
def test_the_risk_is_monotone_in_what_is_bounded(c: float, r: float, a: float, pi: float, more: float) -> None:
    base = mixed_risk(pi, c, r, a)
    slack = 1e-12
    assert mixed_risk(pi, min(1.0, c + more), r, a) <= base + slack
    assert mixed_risk(pi, c, min(1.0, r + more), a) >= base - slack
    assert mixed_risk(pi, c, r, min(1.0, a + more)) >= base - slack
    assert mixed_risk(min(1.0, pi + more), c, r, a) >= base - slack


def test_corner_cases_of_the_budget() -> None:
    assert largest_prevalence(0.05, 0.0, 0.0, 0.1) is None
    assert largest_prevalence(0.05, 0.9, 0.01, 0.0) == 1.0
    assert mixed_risk(0.3, 0.0, 0.0, 0.0) == 1.0


def test_bounds_are_clopper_pearson_at_a_third_of_delta(table: ScoreTable) -> None:
    accept = accepted_by(table, 2.0, 1.0)
    budget = prevalence_budget(table, accept, 0.05, 0.06)
    of_id, right = int((accept & table.is_id).sum()), int((accept & table.correct).sum())
    ood = int((accept & ~table.is_id).sum())
    c, r = lower_bound(of_id, table.n_id, 0.02), upper_bound(of_id - right, of_id, 0.02)
    a = upper_bound(ood, table.n_ood, 0.02)
    assert budget.pi_star == pytest.approx(largest_prevalence(0.05, float(c), float(r), float(a)))
    assert [point.prevalence for point in budget.curve] == list(CURVE)
    at = {point.prevalence: point for point in budget.curve}
    assert at[0.0].risk == pytest.approx((of_id - right) / of_id)
    assert at[0.5].upper == pytest.approx(mixed_risk(0.5, float(c), float(r), float(a)))
    assert all(point.risk <= point.upper for point in budget.curve)


def test_a_policy_that_is_wrong_too_often_has_no_budget(table: ScoreTable) -> None:
    budget = prevalence_budget(table, table.finite, 0.01, 0.05)
    assert budget.pi_star is None
    assert "not certified" in budget.statement


def test_a_policy_that_accepts_nothing_has_no_budget(table: ScoreTable) -> None:
    budget = prevalence_budget(table, np.zeros(len(table), dtype=bool), 0.5, 0.05)
    assert budget.pi_star is None


def test_the_printed_budget_is_never_larger_than_the_certified_one(table: ScoreTable) -> None:
    for tau in (1.0, 1.5, 2.0, 2.5):
        budget = prevalence_budget(table, accepted_by(table, tau, 1.0), 0.05, 0.05)
        if budget.pi_star is not None:
            printed = float(budget.statement.split("at most ")[1].split(" %")[0])
            assert 0.98 * 100 * budget.pi_star <= printed <= 100 * budget.pi_star
