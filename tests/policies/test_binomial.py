"""Exact bounds against scipy.stats, and sample sizes against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from calibration.binomial import (
    clopper_pearson,
    fewest_samples,
    lower_bound,
    p_value,
    samples_needed,
    upper_bound,
)

counts = st.integers(0, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
levels = st.floats(0.001, 0.5)


@given(counts, st.floats(0.001, 0.999))
def test_p_value_is_the_lower_binomial_tail(count: tuple[int, int], risk: float) -> None:
    k, n = count
    assert float(p_value(k, n, risk)) == pytest.approx(binom.cdf(k, n, risk), rel=1e-9, abs=1e-300)


@given(counts, st.floats(0.5, 0.999))
def test_clopper_pearson_agrees_with_scipy(count: tuple[int, int], level: float) -> None:
    k, n = count
    if n == 0:
        assert clopper_pearson(0, 0, level) == (0.0, 1.0)
        return
    expected = binomtest(k, n).proportion_ci(level, method="exact")
    assert clopper_pearson(k, n, level) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(counts, levels)
def test_bounds_invert_the_tails(count: tuple[int, int], delta: float) -> None:
    k, n = count
    high, low = float(upper_bound(k, n, delta)), float(lower_bound(k, n, delta))
    assert low <= high or delta == 0.5
    if k < n:
        assert binom.cdf(k, n, high) == pytest.approx(delta, rel=1e-6)
    if k > 0:
        assert binom.sf(k - 1, n, low) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("risk", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("delta", [0.01, 0.05])
def test_fewest_samples_is_the_first_number_that_certifies_without_an_error(risk: float, delta: float) -> None:
    n = fewest_samples(risk, delta)
    assert p_value(0, n, risk) <= delta < p_value(0, n - 1, risk)


@pytest.mark.parametrize(("risk", "delta", "true_risk"), [(0.1, 0.05, 0.04), (0.05, 0.01, 0.02), (0.2, 0.1, 0.0)])
def test_samples_needed_is_the_smallest_size_with_the_power(risk: float, delta: float, true_risk: float) -> None:
    sizes = np.arange(1, 1500)
    allowed = binom.ppf(delta, sizes, risk)
    allowed -= binom.cdf(allowed, sizes, risk) > delta
    power = np.where(allowed >= 0, binom.cdf(allowed, sizes, true_risk), 0.0)
    assert samples_needed(risk, delta, true_risk) == sizes[np.argmax(power >= 0.9)]


def test_samples_needed_for_one_per_cent() -> None:
    assert samples_needed(0.01, 0.05, 0.005) == 2546
    assert samples_needed(0.01, 0.05, 0.01) is None
