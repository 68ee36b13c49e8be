"""The monitors together: silent while the world is as calibrated, loud when it is not, the same after a restart."""

from typing import Any

import numpy as np
import orjson
import pytest
from support.traffic import counts_of, draw_traffic

from calibration.policy import Policy
from service.monitoring.alarms import KINDS
from service.monitoring.counts import Counts
from service.monitoring.watch import Watch
from service.monitoring.windows import Windows
from service.settings_monitoring import MonitoringSettings

SETTINGS = MonitoringSettings()


def _feed(watch: Watch, rng: np.random.Generator, n: int, now: float, *, block: int = 100, **drift: Any) -> float:
    for _ in range(n // block):
        now += 1.0
        watch.take(counts_of(watch.policy, draw_traffic(rng, block, **drift)), now)
    return now


def _raised(watch: Watch) -> set[str]:
    return {kind for kind in KINDS if watch.alarm(kind).raised}


def test_traffic_as_calibrated_raises_nothing(numbered: Policy) -> None:
    watch = Watch(numbered, SETTINGS, 0.0)
    _feed(watch, np.random.default_rng(1), 50_000, 0.0)
    assert _raised(watch) == set()
    status = watch.status(500.0)
    rate = status["acceptance"]["since_start"]
    assert rate["low"] < status["acceptance"]["expected"]["rate"] < rate["high"]
    assert rate["trials"] == 50_000


def test_a_drift_late_in_a_quiet_run_is_found_within_a_few_hundred_decisions(numbered: Policy) -> None:
    watch, rng = Watch(numbered, SETTINGS, 0.0), np.random.default_rng(2)
    now = _feed(watch, rng, 30_000, 0.0)
    assert _raised(watch) == set()
    _feed(watch, rng, 1_500, now, id_share=0.6)
    assert _raised(watch) >= {"acceptance_recent", "score_s_ood"}
    alarm = watch.alarm("acceptance_recent")
    assert now < (alarm.since or 0) <= now + 15
    assert alarm.evidence["direction"] == "below"
    assert alarm.evidence["rate"] < alarm.evidence["expected"][0]
    assert alarm.evidence["e_value"] >= 200


def test_evidence_against_another_band_is_not_taken_over(numbered: Policy) -> None:
    """An operator who states what is normal, or another limit, starts over against that."""
    watch, rng = Watch(numbered, SETTINGS.model_copy(update={"risk_limit": 0.01}), 0.0), np.random.default_rng(4)
    _feed(watch, rng, 3_000, 0.0, id_share=0.6)
    watch.hear(200, 20, 1.0)
    assert _raised(watch) >= {"acceptance", "acceptance_recent", "selective_risk"}
    state = orjson.loads(orjson.dumps(watch.state()))
    same = Watch(numbered, watch.settings, 0.0)
    same.resume(state)
    assert _raised(same) == _raised(watch)
    stated = {"expected_acceptance": (0.1, 0.9), "risk_limit": 0.2}
    other = Watch(numbered, SETTINGS.model_copy(update=stated), 0.0)
    other.resume(state)
    other.take(Counts.nothing(), 5.0)
    other.hear(200, 20, 5.0)
    assert _raised(other) & {"acceptance", "acceptance_recent", "selective_risk"} == set()
    assert other.counts.decided == 3_000
    assert other.log_e("acceptance") < 0
    assert other.log_e("selective_risk") < 0


def test_windows_survive_a_clock_that_is_set_back() -> None:
    windows = Windows()
    for step in range(200):
        windows.add(10_000.0 + 5 * step, 100 * step, 100 * step)  # all accepted
    total, now = 19_900, 10_000.0 + 5 * 199 - 3_600
    for step in range(1, 30):
        windows.add(now + 5 * step, total, total + 100 * step)  # all rejected
    rates = windows.rates(now + 5 * 29, total, total + 2_900)
    assert rates["1m"] == 0.0
    assert rates["10m"] == pytest.approx(9_000 / 11_900, abs=0.02)
    assert rates["policy"] == total / (total + 2_900)


def test_more_accepted_than_expected_is_an_alarm_too(numbered: Policy) -> None:
    watch = Watch(numbered, SETTINGS, 0.0)
    _feed(watch, np.random.default_rng(3), 5_000, 0.0, id_share=1.0)
    assert {"acceptance", "acceptance_recent"} <= _raised(watch)
    assert watch.alarm("acceptance").evidence["direction"] == "above"


def test_a_shift_that_leaves_the_acceptance_rate_alone_is_seen_in_the_scores(numbered: Policy) -> None:
    """Accepted items become more confident, rejected ones less: as many are accepted as before."""
    watch, rng = Watch(numbered, SETTINGS, 0.0), np.random.default_rng(4)
    for step in range(30):
        traffic = draw_traffic(rng, 100)
        traffic["s_id"] = numbered.tau_id + 1.8 * (traffic["s_id"] - numbered.tau_id)
        watch.take(counts_of(numbered, traffic), float(step))
    assert "score_s_id" in _raised(watch)
    assert not _raised(watch) & {"acceptance", "acceptance_recent", "score_s_ood"}


def test_a_passing_alarm_clears_when_the_world_is_back_and_the_lasting_one_stays(numbered: Policy) -> None:
    watch, rng = Watch(numbered, MonitoringSettings(clear_seconds=60), 0.0), np.random.default_rng(5)
    now = _feed(watch, rng, 3_000, 0.0, id_share=0.55)
    assert {"acceptance", "acceptance_recent"} <= _raised(watch)
    _feed(watch, rng, 20_000, now)
    assert _raised(watch) == {"acceptance"}
    alarm = watch.alarm("acceptance_recent")
    assert alarm.cleared is not None
    assert alarm.times == 1


def test_an_operator_can_clear_any_alarm_and_its_monitor_starts_over(numbered: Policy) -> None:
    watch, rng = Watch(numbered, SETTINGS, 0.0), np.random.default_rng(6)
    now = _feed(watch, rng, 3_000, 0.0, id_share=0.5)
    for kind in KINDS:
        watch.clear(kind, now)
    assert _raised(watch) == set()
    _feed(watch, rng, 5_000, now)
    assert _raised(watch) == set()
    _feed(watch, rng, 3_000, now, id_share=0.5)
    assert "acceptance" in _raised(watch)


def test_a_restart_changes_nothing(numbered: Policy) -> None:
    """Stopped at any point and resumed from its JSON, a watch says exactly what an uninterrupted one says."""
    rng, again = np.random.default_rng(7), np.random.default_rng(7)
    whole, parts = Watch(numbered, SETTINGS, 0.0), Watch(numbered, SETTINGS, 0.0)
    now = 0.0
    for share in (0.8, 0.8, 0.7, 0.6, 0.8):
        _feed(whole, rng, 1_000, now, id_share=share)
        _feed(parts, again, 1_000, now, id_share=share)
        now += 10.0
        whole.hear(int(now * 10), int(now), now)
        parts.hear(int(now * 10), int(now), now)
        state = orjson.loads(orjson.dumps(parts.state()))
        parts = Watch(numbered, SETTINGS, 999.0)
        parts.resume(state)
    assert parts.status(now) == whole.status(now)
    assert _raised(whole)


def test_how_decisions_were_spread_over_workers_and_looks_does_not_matter(numbered: Policy) -> None:
    rng = np.random.default_rng(8)
    together, apart = Watch(numbered, SETTINGS, 0.0), Watch(numbered, SETTINGS, 0.0)
    for step in range(20):
        workers = [counts_of(numbered, draw_traffic(rng, n)) for n in (30, 70)]
        together.take(workers[0] + workers[1], float(step))
        apart.take(workers[1] + workers[0], float(step))
    assert together.status(20.0) == apart.status(20.0)


def test_without_evidence_the_first_decisions_become_the_baseline(numbered: Policy) -> None:
    settings = MonitoringSettings(baseline="live", baseline_decisions=1000)
    watch, rng = Watch(numbered, settings, 0.0), np.random.default_rng(9)
    assert watch.status(0.0)["acceptance"]["expected"] is None
    assert "waiting" in watch.status(0.0)["scores"]["s_id"]["why"]
    now = _feed(watch, rng, 1_000, 0.0, id_share=0.5)  # unlike calibration, but this is what is normal here
    expected = watch.status(now)["acceptance"]["expected"]
    assert expected["source"] == "live"
    now = _feed(watch, rng, 20_000, now, id_share=0.5)
    assert _raised(watch) == set()
    resumed = Watch(numbered, settings, 0.0)
    resumed.resume(orjson.loads(orjson.dumps(watch.state())))
    assert resumed.status(now) == watch.status(now)
    _feed(resumed, rng, 3_000, now)
    assert {"acceptance_recent", "score_s_ood"} <= _raised(resumed)


def test_a_bare_policy_is_watched_by_its_acceptance_rate_alone() -> None:
    bare = Policy(tau_id=0.5, tau_ood=0.5, number=1)
    watch = Watch(bare, MonitoringSettings(baseline_decisions=1000), 0.0)
    rng = np.random.default_rng(10)
    now = _feed(watch, rng, 3_000, 0.0)
    status = watch.status(now)
    assert status["acceptance"]["expected"]["source"] == "live"
    assert status["scores"]["s_id"] == {"watched": False, "why": "the policy has no calibration quantiles"}
    assert status["selective_risk"] is None


@pytest.mark.parametrize(("rate", "alarmed"), [(0.5, False), (3.0, True)])
def test_audit_labels_are_held_against_the_promise(numbered: Policy, rate: float, alarmed: bool) -> None:
    watch, rng = Watch(numbered, SETTINGS, 0.0), np.random.default_rng(11)
    promise = watch.status(0.0)["selective_risk"]["promise"]["limit"]
    labelled = wrong = 0
    for step in range(150):
        labelled, wrong = labelled + 10, wrong + int(rng.binomial(10, rate * promise))
        watch.hear(labelled, wrong, float(step))
    assert _raised(watch) == ({"selective_risk"} if alarmed else set())
    risk = watch.status(150.0)["selective_risk"]
    assert risk["low"] < rate * promise < risk["high"]


def test_another_ledger_starts_the_labels_over(numbered: Policy) -> None:
    watch = Watch(numbered, SETTINGS, 0.0)
    watch.hear(100, 5, 1.0)
    watch.hear(20, 1, 2.0)
    risk = watch.status(2.0)["selective_risk"]
    assert (risk["trials"], risk["events"]) == (20, 1)


def test_windows_show_the_last_minutes(numbered: Policy) -> None:
    watch, rng = Watch(numbered, SETTINGS, 0.0), np.random.default_rng(12)
    now = _feed(watch, rng, 600_000, 0.0, block=1000)
    now = _feed(watch, rng, 60_000, now, block=1000, id_share=0.2)
    rates = watch.status(now)["acceptance"]["windows"]
    assert rates["1m"] < 0.4
    assert rates["1m"] < rates["10m"] < rates["1h"] == pytest.approx(rates["policy"])
    for second in range(120):
        watch.take(Counts.nothing(), now + second)
    assert watch.status(now + 120)["acceptance"]["windows"]["1m"] is None
    assert len(orjson.dumps(watch.state())) < 100_000  # bounded memory
