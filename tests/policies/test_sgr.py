"""SGR against a literal transcription of the published algorithm."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from calibration.calibrate import calibrate
from calibration.errors import SelectionRefused
from calibration.select import Parameters
from calibration.select.sgr import sgr


def published(score: list[float], wrong: list[bool], risk: float, delta: float) -> list[tuple[float, float]]:
    """Every (threshold, bound) that Algorithm 1 of Geifman & El-Yaniv (2017) visits, in plain Python."""
    m = len(score)
    steps = math.ceil(math.log2(m))
    ascending = sorted(score)
    low, high = 1, m
    visited = []
    for _ in range(steps):
        z = math.ceil((low + high) / 2)
        theta = ascending[z - 1]
        accepted = [w for s, w in zip(score, wrong, strict=True) if s >= theta]
        errors, size = sum(accepted), len(accepted)
        bound = (
            1.0
            if errors == size
            else brentq(lambda b: binom.cdf(errors, size, b) - delta / steps, 1e-12, 1 - 1e-12, xtol=1e-14)  # noqa: B023
        )
        visited.append((theta, bound))
        if bound < risk:
            high = z
        else:
            low = z
    return visited


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=2, max_size=120),
    risk=st.sampled_from([0.05, 0.2, 0.5, 0.9]),
    delta=st.sampled_from([0.01, 0.1, 0.4]),
)
def test_the_search_visits_what_the_paper_visits(rows: list[tuple[int, bool]], risk: float, delta: float) -> None:
    score, wrong = [float(s) / 3 for s, _ in rows], [w for _, w in rows]
    met = [(theta, bound) for theta, bound in published(score, wrong, risk, delta) if bound < risk]
    found = sgr(np.array(score), np.array(wrong), risk, delta)
    if not met:
        assert found is None
        return
    assert found is not None
    assert found.tau == met[-1][0]
    assert found.bound == pytest.approx(met[-1][1], abs=1e-9)
    assert found.accepted == sum(s >= found.tau for s in score)
    assert found.wrong == sum(w for s, w in rows if s / 3 >= found.tau)
    assert found.steps == math.ceil(math.log2(len(rows)))


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_can_be_promised_from_one_row(n: int) -> None:
    assert sgr(np.zeros(n), np.zeros(n, dtype=bool), 0.5, 0.5) is None


def test_the_certificate_is_stamped_for_the_calibration_mix_only(table) -> None:  # type: ignore[no-untyped-def]
    policy = calibrate(table, "sgr", Parameters(risk=0.1, delta=0.05)).policy
    certificate = policy.certificate
    assert certificate is not None
    assert certificate.kind == "sgr"
    assert certificate.scope == "calibration mix only"
    assert "calibration mix only" in certificate.statement
    assert certificate.bound is not None
    assert certificate.bound < 0.1
    assert certificate.tests == policy.parameters["selection"]["steps"]


def test_a_risk_out_of_reach_is_refused_with_the_samples_needed(table) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SelectionRefused, match=r"needs at least \d+ accepted.*bring at least [\d,]+ samples"):
        calibrate(table, "sgr", Parameters(risk=0.001))
    with pytest.raises(SelectionRefused, match=r"cannot be certified with 3,000 samples.*about [\d,]+ samples"):
        calibrate(table, "sgr", Parameters(risk=0.01))
