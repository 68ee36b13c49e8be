"""E-processes: against independent integration, exact expectation under the null, and what they find."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from service.monitoring.eprocess import STRENGTHS, RestartingBets, log_departure, log_excess

steady = settings(deadline=None, derandomize=True)


def _integrated(k: int, n: int, limit: float) -> float:
    """The same wealth by numerical integration of the likelihood ratio over the truncated prior."""
    total = 0.0
    for strength in STRENGTHS:
        concentration = strength / min(limit, 1 - limit)
        prior = beta(concentration * limit, concentration * (1 - limit))

        def bet(theta: float, prior: beta = prior) -> float:
            ratio = k * math.log(theta / limit) + (n - k) * math.log((1 - theta) / (1 - limit))
            return math.exp(ratio) * float(prior.pdf(theta))

        middle = min(max(k / n, limit), 1 - 1e-9)
        pieces = quad(bet, limit, middle, limit=200)[0] if middle > limit else 0.0
        pieces += quad(bet, middle, 1.0, limit=200)[0]
        total += pieces / float(prior.sf(limit))
    return total / len(STRENGTHS)


@pytest.mark.parametrize(
    ("k", "n", "limit"), [(0, 5, 0.3), (7, 20, 0.2), (40, 100, 0.35), (3, 60, 0.02), (55, 60, 0.9)]
)
def test_the_closed_form_is_the_integral(k: int, n: int, limit: float) -> None:
    assert math.exp(float(log_excess(k, n, limit))) == pytest.approx(_integrated(k, n, limit), rel=1e-6)


@steady
@given(limit=st.floats(0.01, 0.99), below=st.floats(0.0, 1.0), n=st.integers(1, 40))
def test_its_expectation_is_one_at_the_limit_and_less_below(limit: float, below: float, n: int) -> None:
    k = np.arange(n + 1)
    wealth = np.exp(log_excess(k, np.full(n + 1, n), limit))
    at_limit = _binomial(n, limit) @ wealth
    assert at_limit == pytest.approx(1.0, abs=1e-8)
    assert _binomial(n, limit * below) @ wealth <= 1.0 + 1e-8


@steady
@given(data=st.data(), limit=st.floats(0.02, 0.98), n=st.integers(0, 200))
def test_one_more_outcome_never_raises_the_expected_wealth(data: st.DataObject, limit: float, n: int) -> None:
    k = data.draw(st.integers(0, n))
    rate = data.draw(st.floats(0.0, limit))
    now, hit, miss = np.exp([log_excess(a, b, limit) for a, b in ((k, n), (k + 1, n + 1), (k, n + 1))])
    assert rate * hit + (1 - rate) * miss <= now * (1 + 1e-9)


@steady
@given(low=st.floats(0.05, 0.5), width=st.floats(0.0, 0.4), where=st.floats(0.0, 1.0), n=st.integers(1, 40))
def test_inside_the_band_the_two_sided_wealth_has_expectation_one_at_most(
    low: float, width: float, where: float, n: int
) -> None:
    high = low + width
    k = np.arange(n + 1)
    wealth = np.exp(log_departure(k, np.full(n + 1, n), low, high))
    assert _binomial(n, low + where * width) @ wealth <= 1.0 + 1e-8


def test_extreme_counts_stay_finite() -> None:
    with np.errstate(all="raise", under="ignore", divide="ignore"):
        assert log_excess(900_000_000, 1_000_000_000, 0.8) > 1e6
        assert np.exp(log_excess(0, 1_000_000_000, 0.8)) == 0.0
        assert log_excess(1, 1, 0.0) < 20  # a limit of zero does not make one event infinite evidence
        assert log_excess(10, 10, 1.0) == 0.0


@settings(steady, max_examples=20)
@given(
    limit=st.floats(0.05, 0.95),
    blocks=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    horizon=st.floats(1.0, 50.0),
)
def test_restarting_wealth_has_expectation_one_whatever_the_looks(
    limit: float, blocks: list[int], horizon: float
) -> None:
    """Every outcome of a short run, however it is cut into looks: the mean wealth is one at the limit."""
    n, total = sum(blocks), 0.0
    for outcomes in itertools.product((0, 1), repeat=n):
        bets, position = RestartingBets([limit], horizon=horizon), 0
        for size in blocks:
            bets.update([sum(outcomes[position : position + size])], size)
            position += size
        hits = sum(outcomes)
        total += limit**hits * (1 - limit) ** (n - hits) * math.exp(bets.log_e)
    assert total == pytest.approx(1.0, rel=1e-9)


def test_restarting_bets_go_on_exactly_where_they_stopped() -> None:
    rng = np.random.default_rng(3)
    whole, first = RestartingBets([0.2, 0.9]), RestartingBets([0.2, 0.9])
    updates = [(rng.integers(0, 20, 2), 20) for _ in range(10)]
    for events, trials in updates[:5]:
        whole.update(events, trials)
        first.update(events, trials)
    second = RestartingBets([0.2, 0.9])
    assert second.resume(first.state())
    for events, trials in updates[5:]:
        whole.update(events, trials)
        second.update(events, trials)
    assert second.log_e == whole.log_e
    assert not RestartingBets([0.2]).resume(first.state())


def test_a_corrected_outcome_takes_its_evidence_back() -> None:
    bets, never = RestartingBets([0.1]), RestartingBets([0.1])
    bets.update([1], 1)
    bets.update([-1], 0)
    never.update([0], 1)
    assert bets.log_e == pytest.approx(never.log_e, abs=1e-2)  # a bet placed in between saw only the correction


def test_false_alarms_stay_below_alpha_over_a_long_run() -> None:
    """400 runs of 5,000 outcomes at the limit, looked at after every 25: both kinds of wealth, α = 5 %."""
    rng = np.random.default_rng(11)
    alpha, limit, runs, steps, block = 0.05, 0.2, 400, 5000, 25
    hits = rng.binomial(block, limit, (runs, steps // block)).cumsum(axis=1)
    trials = np.arange(block, steps + 1, block)
    plain = (log_excess(hits, np.broadcast_to(trials, hits.shape), limit).max(axis=1) >= -math.log(alpha)).mean()
    restarting = np.mean([_ever(np.diff(row, prepend=0), block, limit, alpha) for row in hits])
    assert plain <= alpha
    assert restarting <= alpha


def test_a_late_change_is_found_by_restarting_long_before_the_whole_history_tells() -> None:
    rng = np.random.default_rng(5)
    quiet, changed = rng.binomial(50, 0.2, 400), rng.binomial(50, 0.3, 400)
    bets = RestartingBets([0.2])
    for hits in quiet:
        assert bets.update([hits], 50) < math.log(100)
    found = next(i for i, hits in enumerate(changed, 1) if bets.update([hits], 50) >= math.log(100))
    seen = np.concatenate([quiet, changed]).cumsum()
    whole = log_excess(seen, 50 * np.arange(1, len(seen) + 1), 0.2)[len(quiet) :]
    assert 50 * found < 1000
    assert not (whole[: 3 * found] >= math.log(100)).any()


def test_doubled_risk_is_found_in_few_labels() -> None:
    rng = np.random.default_rng(2)
    labels = np.cumsum(rng.random((100, 2000)) < 0.04, axis=1)
    wealth = log_excess(labels, np.broadcast_to(np.arange(1, 2001), labels.shape), 0.02)
    first = np.where((wealth >= math.log(20)).any(axis=1), (wealth >= math.log(20)).argmax(axis=1) + 1, 2001)
    assert np.median(first) <= 700


def _ever(hits: np.ndarray, block: int, limit: float, alpha: float) -> bool:
    bets = RestartingBets([limit])
    return any(bets.update([k], block) >= -math.log(alpha) for k in hits)


def _binomial(n: int, p: float) -> np.ndarray:
    from scipy.stats import binom

    mass: np.ndarray = binom.pmf(np.arange(n + 1), n, p)
    return mass
