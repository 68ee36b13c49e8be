"""Confidence sequences: they hold at all times at once, and tighten."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.monitoring.confidence import confidence_sequence


@settings(deadline=None, derandomize=True)
@given(st.integers(1, 500), st.data(), st.floats(0.001, 0.3))
def test_the_interval_holds_the_estimate_and_widens_with_certainty(n: int, data: st.DataObject, alpha: float) -> None:
    k = data.draw(st.integers(0, n))
    wide, narrow = confidence_sequence(k, n, alpha / 10), confidence_sequence(k, n, alpha)
    assert 0.0 <= wide.low <= narrow.low <= k / n <= narrow.high <= wide.high <= 1.0
    mirrored = confidence_sequence(n - k, n, alpha)
    assert mirrored.low == pytest.approx(1 - narrow.high, abs=1e-9)


def test_it_covers_the_truth_at_every_time_at_once() -> None:
    rng = np.random.default_rng(1)
    runs, steps, alpha, rate = 200, 1000, 0.1, 0.3
    missed = 0
    for outcomes in rng.random((runs, steps)) < rate:
        hits = outcomes.cumsum()
        looks = range(10, steps, 10)
        intervals = (confidence_sequence(int(hits[i - 1]), i, alpha) for i in looks)
        missed += any(not interval.low <= rate <= interval.high for interval in intervals)
    assert missed / runs <= alpha


def test_nothing_is_known_before_the_first_trial() -> None:
    interval = confidence_sequence(0, 0, 0.05)
    assert (interval.estimate, interval.low, interval.high) == (None, 0.0, 1.0)


def test_many_trials_give_a_narrow_interval() -> None:
    interval = confidence_sequence(8_000_000, 10_000_000, 0.01)
    assert interval.high - interval.low < 0.002
