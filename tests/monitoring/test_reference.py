"""What counts as normal: bands that hold despite the luck of the calibration draw, ties and mixes."""

import numpy as np
import pytest

from calibration.calibrate import calibrate
from calibration.policy import Policy
from calibration.select import Parameters
from calibration.table import ScoreTable
from service.monitoring.reference import (
    acceptance_band,
    cut_bands,
    live_band,
    live_cut_bands,
    near_widths,
    promised_risk,
    score_cuts,
    spread,
)
from service.settings_monitoring import MonitoringSettings

STRICT = MonitoringSettings(tolerance=0.0)


def test_the_band_is_the_exact_interval_around_the_calibrated_rate(policy: Policy) -> None:
    band = acceptance_band(policy, STRICT, 0.05)
    assert band is not None
    assert policy.evidence is not None
    outcome = policy.evidence.outcome.acceptance
    assert band.expected == outcome.value
    assert band.low == pytest.approx(outcome.low)  # the evidence's own interval is Clopper-Pearson at 95 %
    assert band.high == pytest.approx(outcome.high)
    stricter = acceptance_band(policy, MonitoringSettings(tolerance=0.02), 0.005)
    assert stricter is not None
    assert stricter.low < band.low - 0.02
    assert stricter.high > band.high + 0.02


def test_a_stated_prevalence_moves_the_band_to_that_mix(table: ScoreTable) -> None:
    """Evidence weighted to 5 % OOD must expect the acceptance of 5 % OOD traffic, not the table's own."""
    policy = calibrate(table, "dsf1", Parameters(prevalence=0.05)).policy
    band = acceptance_band(policy, STRICT, 0.05)
    accept = policy.decide(table.s_id, table.s_ood).accept
    live = 0.95 * accept[table.is_id].mean() + 0.05 * accept[~table.is_id].mean()
    assert band is not None
    assert band.low < live < band.high
    assert not band.low < accept.mean() < band.high
    assert cut_bands(policy, "s_id", STRICT, 0.05) is None  # the table's quantiles are of another mix


def test_an_operator_may_say_what_is_normal(policy: Policy) -> None:
    band = acceptance_band(policy, MonitoringSettings(expected_acceptance=(0.6, 0.8)), 0.05)
    assert band is not None
    assert (band.low, band.high, band.source) == (0.6, 0.8, "setting")


def test_without_evidence_only_live_decisions_can_tell() -> None:
    bare = Policy(tau_id=0.0, tau_ood=0.0)
    assert acceptance_band(bare, STRICT, 0.05) is None
    assert cut_bands(bare, "s_id", STRICT, 0.05) is None
    assert promised_risk(bare, STRICT) is None
    assert near_widths(bare, 0.02) == (0.0, 0.0, 0.0, 0.0)
    assert spread(bare, "s_id") == 1.0
    band = live_band(900, 1000, 0.05)
    assert band.low < 0.9 < band.high


@pytest.mark.parametrize("decimals", [8, 0])
def test_cut_bands_hold_the_true_shares_in_nearly_every_calibration(decimals: int) -> None:
    """Draws of 400 scores, smooth or heavily tied: the truth leaves a band in no more than δ of them."""
    rng = np.random.default_rng(4)
    reference = np.round(rng.normal(0, 2, 200_000), decimals)
    delta, missed, rounds = 0.2, 0, 40
    for _ in range(rounds):
        cuts = cut_bands(_with_scores(np.round(rng.normal(0, 2, 400), decimals)), "s_id", STRICT, delta)
        assert cuts is not None
        less = (reference[:, None] < cuts.at).mean(axis=0)
        at_most = (reference[:, None] <= cuts.at).mean(axis=0)
        missed += bool((less > cuts.high).any() or (at_most < cuts.low).any())
    assert missed / rounds <= delta


def test_live_cut_bands_hold_the_counts_they_came_from() -> None:
    scores = np.random.default_rng(0).normal(size=1000)
    at = np.array([-1.0, 0.0, 1.0])
    less, at_most = (scores[:, None] < at).sum(axis=0), (scores[:, None] <= at).sum(axis=0)
    cuts = live_cut_bands(at, less, at_most, 1000, 0.05)
    assert (cuts.low < at_most / 1000).all()
    assert (less / 1000 < cuts.high).all()


def test_equal_quantiles_are_one_cut(table: ScoreTable) -> None:
    at, levels = score_cuts(_with_scores(np.repeat([0.0, 1.0], 300)), "s_id")
    assert at.tolist() == sorted(set(at.tolist()))
    assert len(at) == len(levels)


def test_the_promise_is_the_certificate_then_the_claim_then_the_evidence(table: ScoreTable) -> None:
    certified = calibrate(table, "sgr", Parameters(risk=0.12, delta=0.1)).policy
    assert promised_risk(certified, STRICT) == _promise(0.12, "certificate")
    claimed = calibrate(table, "dsf1", Parameters(risk=0.2)).policy
    assert promised_risk(claimed, STRICT) == _promise(0.2, "claim")
    assert promised_risk(claimed, MonitoringSettings(risk_limit=0.01)) == _promise(0.01, "setting")
    plain = calibrate(table, "dsf1").policy
    found = promised_risk(plain, STRICT)
    assert plain.evidence is not None
    assert found is not None
    assert found.limit == plain.evidence.outcome.selective_risk.high


def test_near_is_a_share_of_the_calibration_scores(policy: Policy, table: ScoreTable) -> None:
    below, above, _, _ = near_widths(policy, 0.02)
    inside = (table.s_id >= policy.tau_id - below) & (table.s_id < policy.tau_id + above)
    assert inside.mean() == pytest.approx(0.04, abs=0.01)


def _promise(limit: float, source: str) -> object:
    from service.monitoring.reference import Promise

    return Promise(limit, source)


def _with_scores(scores: np.ndarray) -> Policy:
    n = len(scores)
    table = ScoreTable.from_columns(s_id=scores, s_ood=np.ones(n), is_id=np.ones(n, bool), correct=np.ones(n, bool))
    return calibrate(table, "dsf1").policy
