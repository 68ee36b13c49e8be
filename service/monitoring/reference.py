"""What is normal: the bands that live rates are tested against, from a policy's evidence or from live decisions.

A calibrated rate is itself measured on a sample, so each band is an exact interval at `delta`: whoever tests against
it at α - delta raises a false alarm with probability α at most, the luck of the calibration draw included.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.binomial import clopper_pearson, lower_bound, upper_bound
from calibration.evidence import Estimate, Evidence
from calibration.policy import Policy
from service.settings_monitoring import MonitoringSettings

SCORES = ("s_id", "s_ood")
SETTING, CALIBRATION, LIVE = "setting", "calibration", "live"
_SHARES_DIFFER = 0.005  # OOD shares further apart than this are different mixes (a stratified split rounds)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Band:
    """A rate's expected value and the interval that counts as normal."""

    expected: float
    low: float
    high: float
    source: str

    def widened(self, by: float) -> "Band":
        """The same with a tolerance on both sides."""
        return Band(self.expected, max(0.0, self.low - by), min(1.0, self.high + by), self.source)


@dataclass(frozen=True)
class CutBands:
    """Points on a score's axis; normal are P(s < at) ≤ high and P(s ≤ at) ≥ low at every one of them."""

    at: Array
    low: Array
    high: Array
    source: str

    def widened(self, by: float) -> "CutBands":
        """The same with a tolerance on both sides."""
        return CutBands(self.at, np.maximum(self.low - by, 0.0), np.minimum(self.high + by, 1.0), self.source)


@dataclass(frozen=True)
class Promise:
    """The selective risk that must not be exceeded, and who said so."""

    limit: float
    source: str


def acceptance_band(policy: Policy, settings: MonitoringSettings, delta: float) -> Band | None:
    """The acceptance rates that are normal under a policy; None when only live decisions can tell."""
    if settings.expected_acceptance is not None:
        low, high = settings.expected_acceptance
        return Band((low + high) / 2, low, high, SETTING)
    if settings.baseline == LIVE or policy.evidence is None:
        return None
    band = _calibrated(policy, policy.evidence, delta)
    return None if band is None else band.widened(settings.tolerance)


def live_band(accepted: int, decided: int, delta: float) -> Band:
    """The same from the first decisions under a policy."""
    low, high = clopper_pearson(accepted, decided, 1.0 - delta)
    return Band(accepted / decided, low, high, LIVE)


def _calibrated(policy: Policy, evidence: Evidence, delta: float) -> Band | None:
    outcome, n = evidence.outcome, evidence.n
    expected = outcome.acceptance.value
    if n == 0 or expected is None:
        return None
    if policy.data is not None and policy.data.weighted:
        return _stretched(outcome.acceptance, expected, evidence.level, delta)
    share = evidence.prevalence
    if share is None or abs(share - evidence.n_ood / n) < _SHARES_DIFFER:
        low, high = clopper_pearson(round(outcome.accepted), n, 1.0 - delta)
        return Band(expected, low, high, CALIBRATION)
    return _mixed(evidence, share, expected, delta)


def _mixed(evidence: Evidence, share: float, expected: float, delta: float) -> Band | None:
    """(1-π)·c + π·a at a stated OOD share π, with exact intervals of both acceptances at half the error each."""
    kept, let_in = evidence.outcome.id_coverage.value, evidence.outcome.ood_acceptance.get("all")
    if kept is None or let_in is None or let_in.value is None:
        return None
    level = 1.0 - delta / 2
    id_low, id_high = clopper_pearson(round(kept * evidence.n_id), evidence.n_id, level)
    ood_low, ood_high = clopper_pearson(round(let_in.value * evidence.n_ood), evidence.n_ood, level)
    low = (1.0 - share) * id_low + share * ood_low
    return Band(expected, low, (1.0 - share) * id_high + share * ood_high, CALIBRATION)


def _stretched(estimate: Estimate, expected: float, level: float, delta: float) -> Band | None:
    """A weighted table has no exact interval: its bootstrap interval, stretched from its level to ours."""
    from scipy.special import ndtri

    if estimate.low is None or estimate.high is None:
        return None
    factor = float(ndtri(1.0 - delta / 2) / ndtri(0.5 + level / 2))
    low, high = expected - factor * (expected - estimate.low), expected + factor * (estimate.high - expected)
    return Band(expected, max(0.0, low), min(1.0, high), CALIBRATION)


def cut_bands(policy: Policy, score: str, settings: MonitoringSettings, delta: float) -> CutBands | None:
    """Bands at the calibration quantiles of a score; None when the table's mix is not the one that is expected live.

    The k-th of n sorted draws from F has F-value Beta(k, n+1-k), whatever F is; an interpolated quantile lies between
    two of them. `delta` is shared by all cuts. Equal scores are taken care of by testing < and ≤ separately.
    """
    data, evidence = policy.data, policy.evidence
    if settings.baseline == LIVE or data is None or evidence is None or data.weighted:
        return None
    if evidence.prevalence is not None and abs(evidence.prevalence - data.n_ood / data.n) > _SHARES_DIFFER:
        return None
    at, levels = score_cuts(policy, score)
    n = data.n - data.not_finite
    if n < 2 or not len(at):
        return None
    each = delta / (2 * len(at))
    below, above = np.floor(levels * (n - 1)) + 1, np.ceil(levels * (n - 1)) + 1
    low, high = _beta_quantile(below, n, each), _beta_quantile(above, n, 1.0 - each)
    return CutBands(at, low, high, CALIBRATION).widened(settings.tolerance)


def live_cut_bands(at: Array, less: Array, at_most: Array, scored: int, delta: float) -> CutBands:
    """The same from counts of live scores below, and at most at, every cut."""
    each = delta / max(1, 2 * len(at))
    low = np.asarray(lower_bound(at_most, np.full(len(at), scored), each))
    high = np.asarray(upper_bound(less, np.full(len(at), scored), each))
    return CutBands(at, low, high, LIVE)


def score_cuts(policy: Policy, score: str) -> tuple[Array, Array]:
    """The inner calibration quantiles of a score and their levels, repeated values left out."""
    data = policy.data
    values = () if data is None else data.quantiles.get(score, ())
    if data is None or len(values) != len(data.quantile_levels):
        return np.empty(0), np.empty(0)
    at, levels = np.asarray(values, dtype=np.float64), np.asarray(data.quantile_levels, dtype=np.float64)
    inner = (levels > 0.0) & (levels < 1.0)
    at, levels = at[inner], levels[inner]
    _, first = np.unique(at, return_index=True)
    return at[first], levels[first]


def promised_risk(policy: Policy, settings: MonitoringSettings) -> Promise | None:
    """The limit for the selective risk: a setting, the certificate, a claim, else the upper end of the evidence."""
    if settings.risk_limit is not None:
        return Promise(settings.risk_limit, SETTING)
    certificate, evidence = policy.certificate, policy.evidence
    if certificate is not None and certificate.kind != "none" and certificate.risk is not None:
        return Promise(certificate.risk, "certificate")
    if evidence is None:
        return None
    claims = [claim.limit for claim in evidence.claims if claim.metric == "selective_risk"]
    if claims:
        return Promise(min(claims), "claim")
    high = evidence.outcome.selective_risk.high
    return None if high is None else Promise(high, "evidence, upper end of its interval")


def _beta_quantile(rank: Array, n: int, q: float) -> Array:
    from scipy.special import betaincinv

    found: Array = betaincinv(rank, n + 1.0 - rank, q)
    return found


def near_widths(policy: Policy, mass: float) -> tuple[float, float, float, float]:
    """How far below and above τ_id, then τ_ood, the nearest `mass` of the calibration scores reaches.

    Zero where the policy has no quantiles or the door is open: then nothing is near.
    """
    below_id, above_id = _widths(policy, "s_id", policy.tau_id, mass)
    below_ood, above_ood = _widths(policy, "s_ood", policy.tau_ood, mass)
    return below_id, above_id, below_ood, above_ood


def _widths(policy: Policy, score: str, tau: float, mass: float) -> tuple[float, float]:
    at, levels = score_cuts(policy, score)
    if len(at) < 2 or not math.isfinite(tau):
        return 0.0, 0.0
    level = float(np.interp(tau, at, levels))
    low, high = np.interp([level - mass, level + mass], levels, at)
    return max(0.0, tau - float(low)), max(0.0, float(high) - tau)


def spread(policy: Policy, score: str) -> float:
    """The interquartile range of a score in calibration, one where it is unknown: the unit of distances to τ."""
    at, levels = score_cuts(policy, score)
    if len(at) < 2:
        return 1.0
    low, high = np.interp([0.25, 0.75], levels, at)
    return float(high - low) or 1.0
