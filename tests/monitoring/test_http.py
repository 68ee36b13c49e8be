"""The routes of monitoring, over HTTP in one process: what a caller, a labeller and Prometheus get."""

import asyncio
import io
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.echo import item
from support.local import Local, problem
from support.traffic import draw_traffic, instances

from calibration.policy import REASONS, Policy
from calibration.store import PolicyStore
from models.bundle import Bundle
from service.monitoring import schemas
from service.monitoring.alarms import KINDS

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(local: Local) -> Samples:
    response = local.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(response.text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def until(check: Callable[[], Any], seconds: float = 20.0) -> Any:
    """Try until it holds: counting and evaluation happen beside the requests."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except (AssertionError, KeyError, TypeError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def give(local: Local, document: Any, **options: Any) -> Any:
    return local.admin("POST", "/v1/feedback", json=document, **options)


def test_every_series_exists_before_the_first_request(local: Local) -> None:
    samples = scrape(local)
    for reason in REASONS:
        labels = (
            {"decision": "accept", "reason": "none"} if reason is None else {"decision": "reject", "reason": reason}
        )
        assert value(samples, "airlock_decisions_total", **labels) == 0
    for name in ("cat", "dog", "fish", "other"):
        for decision in ("accept", "reject"):
            assert value(samples, "airlock_predictions_total", **{"class": name, "decision": decision}) == 0
    for kind in KINDS:
        assert value(samples, "airlock_alarm", kind=kind) == 0
    for change in ("to_accept", "to_reject"):
        assert value(samples, "airlock_shadow_changes_total", change=change) == 0
    for window in ("1m", "10m", "1h", "policy"):
        assert np.isnan(value(samples, "airlock_acceptance_rate", window=window))
    for bound in ("lower", "estimate", "upper", "promise"):
        assert ("airlock_selective_risk", (("bound", bound),)) in samples
    for name in (
        "airlock_near_threshold_total", "airlock_ledger_dropped_total", "airlock_ledger_queue_depth",
        "airlock_inference_seconds_count", "airlock_batch_size_count", "airlock_acceptance_rate_expected",
    ):  # fmt: skip
        assert (name, ()) in samples
    assert value(samples, "airlock_acceptance_evalue") == 1.0
    assert value(samples, "airlock_score_bucket", score="s_id", le="+Inf") == 0


def test_decisions_are_counted_by_reason_class_and_score(local: Local, policy: Policy) -> None:
    low, high = policy.tau_id - 1, policy.tau_id + 1
    below, above = policy.tau_ood - 1, policy.tau_ood + 1
    answer = local.classify([item(high, above, 1), item(low, above, 1), item(high, below), item(low, below, 2)])
    assert answer.status_code == 200

    def counted() -> Samples:
        samples = scrape(local)
        for reason in ("low_id", "low_ood", "low_both"):
            assert value(samples, "airlock_decisions_total", decision="reject", reason=reason) == 1
        assert value(samples, "airlock_decisions_total", decision="accept", reason="none") == 1
        assert value(samples, "airlock_predictions_total", **{"class": "dog", "decision": "accept"}) == 1
        assert value(samples, "airlock_predictions_total", **{"class": "fish", "decision": "reject"}) == 1
        assert value(samples, "airlock_ledger_written_total") == 4
        return samples

    samples = until(counted)
    assert value(samples, "airlock_score_count", score="s_ood") == 4
    assert value(samples, "airlock_score_sum", score="s_id") == pytest.approx(4 * policy.tau_id, abs=1e-5)
    assert value(samples, "airlock_batch_size_sum") == 4
    assert value(samples, "airlock_inference_seconds_count") == 1
    buckets = [
        (float(dict(labels)["le"]), count)
        for (name, labels), count in samples.items()
        if name == "airlock_score_bucket" and dict(labels)["score"] == "s_id"
    ]
    assert [count for _, count in sorted(buckets)] == sorted(count for _, count in buckets)
    assert len(buckets) > 10  # the calibration quantiles


def test_promtool_has_nothing_to_say(local: Local) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool (Debian package prometheus) is not installed")
    local.classify(instances(draw_traffic(np.random.default_rng(0), 50)))
    text = local.get("/metrics").text
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_the_shadow_policy_is_compared(local: Local, bundle: Bundle, policy: Policy) -> None:
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    stricter = store.add(policy.model_copy(update={"tau_id": policy.tau_id + 1}))
    assert local.admin("PUT", "/v1/policies/shadow", json={"number": stricter.number}).status_code == 200
    local.classify([item(policy.tau_id + 0.5, 5), item(policy.tau_id + 2, 5)])
    until(lambda: _equal(value(scrape(local), "airlock_shadow_changes_total", change="to_reject"), 1))
    assert value(scrape(local), "airlock_shadow_changes_total", change="to_accept") == 0


def test_status_tells_rates_evidence_policy_and_ledger(local: Local, policy: Policy, bundle: Bundle) -> None:
    local.classify(instances(draw_traffic(np.random.default_rng(1), 1000)))

    def complete() -> dict[str, Any]:
        document: dict[str, Any] = local.get("/v1/status").json()
        assert document["monitors"]["decisions"] == 1000
        assert document["ledger"]["written"] == 1000
        return document

    status = until(complete)
    schemas.Status.model_validate(status)
    assert status["bundle"]["hash"] == bundle.hash
    assert status["policy"]["number"] == 1
    assert status["policy"]["age_seconds"] >= 0
    assert status["policy"]["activated"] is not None
    rate = status["monitors"]["acceptance"]["since_start"]
    assert rate["low"] < rate["rate"] < rate["high"]
    assert policy.evidence is not None
    assert status["monitors"]["acceptance"]["expected"]["rate"] == policy.evidence.outcome.acceptance.value
    assert status["monitors"]["scores"]["s_ood"]["watched"]
    assert status["alarms"] == []
    assert status["ledger"]["dropped"] == 0
    assert status["ledger"]["loss_window_seconds"] <= 1.0


def test_drift_raises_alarms_with_time_and_evidence_and_an_operator_clears_them(local: Local) -> None:
    rng = np.random.default_rng(2)
    local.classify(instances(draw_traffic(rng, 1000, id_share=0.4)))
    local.classify(instances(draw_traffic(rng, 1000, id_share=0.4)))

    def alarmed() -> dict[str, Any]:
        document: dict[str, Any] = local.get("/v1/status").json()
        assert {alarm["kind"] for alarm in document["alarms"]} >= {"acceptance", "acceptance_recent", "score_s_ood"}
        return document

    schemas.Status.model_validate(until(alarmed))
    alarms = {alarm["kind"]: alarm for alarm in until(alarmed)["alarms"]}
    assert alarms["acceptance"]["evidence"]["direction"] == "below"
    assert alarms["acceptance"]["evidence"]["e_value"] >= 200
    assert alarms["acceptance"]["since"].startswith("20")
    assert value(scrape(local), "airlock_alarm", kind="acceptance") == 1
    assert value(scrape(local), "airlock_acceptance_evalue") >= 200
    for kind in KINDS:
        assert local.admin("POST", f"/v1/alarms/{kind}/clear").status_code == 202
    until(lambda: _equal(local.get("/v1/status").json()["alarms"], []))
    past = {alarm["kind"] for alarm in local.get("/v1/status").json()["past_alarms"]}
    assert "acceptance" in past
    problem(local.admin("POST", "/v1/alarms/fire/clear"), 404, "not-found")
    problem(local.request("POST", "/v1/alarms/acceptance/clear"), 401, "unauthorized")


def test_another_policy_starts_its_monitors_over(local: Local, bundle: Bundle, policy: Policy) -> None:
    local.classify(instances(draw_traffic(np.random.default_rng(3), 500, id_share=0.2)))
    until(lambda: _equal(len(local.get("/v1/status").json()["alarms"]) > 0, True))
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    number = store.add(policy).number
    assert local.admin("POST", f"/v1/policies/{number}/activate").status_code == 200
    local.classify(instances(draw_traffic(np.random.default_rng(4), 100)))

    def fresh() -> None:
        status = local.get("/v1/status").json()
        assert status["policy"]["number"] == number
        assert status["monitors"]["decisions"] == 100
        assert status["alarms"] == []

    until(fresh)
    samples = scrape(local)
    info = [dict(labels) for (name, labels) in samples if name == "airlock_policy_info"]
    assert info == [{"policy": f"{number:04d}", "bundle": bundle.hash[:12]}]
    total = sum(count for (name, _), count in samples.items() if name == "airlock_decisions_total")
    assert total == 600  # counters never go back


def test_feedback_is_durable_idempotent_and_consistent(local: Local) -> None:
    answer = local.classify([item(5, 5, 1), item(5, 5, 2)], ids=["a", "b"]).json()
    first = give(local, {"id": "a", "label": "dog"})
    assert first.status_code == 200, first.text
    schemas.FeedbackResult.model_validate(first.json())
    assert first.json() == {
        "status": "recorded", "request_id": answer["request_id"], "item": 0, "prediction": 1, "decision": "accept",
        "wrong": False, "audit": first.json()["audit"],
    }  # fmt: skip
    assert give(local, {"id": "a", "label": 1}).json()["status"] == "unchanged"
    conflict = problem(give(local, {"id": "a", "is_ood": True}), 409, "conflict")
    assert "replace" in conflict["detail"]
    replaced = give(local, {"id": "a", "is_ood": True, "replace": True}).json()
    assert (replaced["status"], replaced["wrong"]) == ("replaced", True)
    request = {"request_id": answer["request_id"]}
    problem(give(local, {**request, "label": 2}), 422, "invalid-parameter")
    assert give(local, {**request, "item": 1, "label": 2}).json()["wrong"] is False


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"label": 1}, "either id or request_id"),
        ({"id": "a", "request_id": "b", "label": 1}, "either id or request_id"),
        ({"id": "a"}, "either label or is_ood"),
        ({"id": "a", "label": 1, "is_ood": True}, "either label or is_ood"),
        ({"id": "a", "is_ood": False}, "either label or is_ood"),
        ({"id": "a", "item": 1, "label": 1}, "goes with request_id only"),
        ({"id": "a", "label": "bird"}, "no class of this bundle"),
        ({"id": "a", "label": 3}, "classes 0 to 2"),
        ({"id": "a", "label": -1}, "classes 0 to 2"),
        ({"id": "a", "label": 1.5}, "label"),
        ({"id": "a", "label": True}, "label"),
        ({"id": "a", "is_ood": "yes"}, "is_ood"),
        ({"id": "a", "label": 1, "replace": 1}, "replace"),
        ({"id": "a", "label": 1, "lable": 2}, "lable"),
        ({"id": "", "label": 1}, "id"),
        (["a"], "dict"),
    ],
)
def test_bad_feedback_is_refused_with_a_sentence(local: Local, document: Any, said: str) -> None:
    assert said in problem(give(local, document), 422, "invalid-parameter")["detail"]


def test_feedback_for_an_unknown_decision_waits_a_moment_then_is_404(local: Local) -> None:
    assert "'ghost'" in problem(give(local, {"id": "ghost", "label": 1}), 404, "not-found")["detail"]
    problem(local.request("POST", "/v1/feedback", json={"id": "a", "label": 1}), 401, "unauthorized")


def test_audited_labels_become_the_selective_risk(make_local: Callable[..., Local]) -> None:
    local = make_local(audit_share=1.0, audit_share_rejected=0.0)
    ids = [f"i{k}" for k in range(60)]
    local.classify([item(9, 9, 1)] * 60, ids=ids)
    for k, id in enumerate(ids):
        assert give(local, {"id": id, "label": "cat" if k % 3 == 0 else "dog"}).status_code == 200

    def risk() -> None:
        samples = scrape(local)
        assert value(samples, "airlock_audit_labels") == 60
        assert value(samples, "airlock_selective_risk", bound="estimate") == pytest.approx(1 / 3)
        low, high = (value(samples, "airlock_selective_risk", bound=bound) for bound in ("lower", "upper"))
        assert value(samples, "airlock_selective_risk", bound="promise") < low < 1 / 3 < high
        assert value(samples, "airlock_alarm", kind="selective_risk") == 1

    until(risk)


def test_review_hands_out_pages(make_local: Callable[..., Local]) -> None:
    local = make_local(audit_share=1.0, audit_share_rejected=0.0)
    accepted = local.classify([item(9, 9, 1)] * 3).json()["predictions"]
    rejected = local.classify([item(-9, 9), item(-3, 9)]).json()["predictions"]
    until(lambda: _equal(value(scrape(local), "airlock_ledger_written_total"), 5))
    first = local.get("/v1/review", params={"limit": 2}).json()
    schemas.Review.model_validate(first)
    assert [entry["id"] for entry in first["items"]] == [prediction["id"] for prediction in accepted[:2]]
    assert first["items"][0] | {"time": None} == {
        "id": accepted[0]["id"], "request_id": accepted[0]["id"][:-2], "item": 0, "why": "audit", "time": None,
        "label": 1, "class": "dog", "s_id": 9.0, "s_ood": 9.0, "decision": "accept", "reason": None, "policy": 1,
        "propensity": 1.0, "margin": None,
    }  # fmt: skip
    rest = local.get("/v1/review", params={"limit": 10, "cursor": first["cursor"]}).json()
    assert [entry["id"] for entry in rest["items"]] == [accepted[2]["id"], rejected[1]["id"], rejected[0]["id"]]
    assert rest["cursor"] is None
    problem(local.get("/v1/review", params={"cursor": "zzz"}), 422, "invalid-parameter")
    for limit in ("0", "501", "x", "-1", "²"):
        problem(local.get("/v1/review", params={"limit": limit}), 422, "invalid-parameter")


def test_without_a_ledger_everything_else_works(make_local: Callable[..., Local]) -> None:
    local = make_local(ledger=False)
    local.classify([item(9, 9)])
    until(lambda: _equal(value(scrape(local), "airlock_decisions_total", decision="accept", reason="none"), 1))
    assert local.get("/v1/status").json()["ledger"] == {"enabled": False}
    assert "switched off" in problem(local.get("/v1/review"), 404, "not-found")["detail"]


def test_the_ledger_keeps_to_its_limits_by_itself(
    make_local: Callable[..., Local], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.monitoring.leader._PRUNE_SECONDS", 0.1)
    local = make_local(ledger_retention_days=1 / 86400, audit_share=1.0)
    local.classify([item(9, 9)] * 5, ids=list("abcde"))
    assert give(local, {"id": "a", "label": 0}).status_code == 200
    assert len(local.get("/v1/review").json()["items"]) == 4
    until(lambda: _equal(local.get("/v1/review").json()["items"], []))
    assert give(local, {"id": "a", "label": 0}).json()["status"] == "unchanged"  # labelled ones stay
    problem(give(local, {"id": "b", "label": 0}), 404, "not-found")


def test_a_database_that_is_away_costs_no_answers(make_local: Callable[..., Local]) -> None:
    local = make_local(ledger_url="postgresql://nobody@127.0.0.1:1/nothing")
    assert local.classify([item(9, 9)]).status_code == 200
    problem(give(local, {"id": "a", "label": 1}), 503, "not-ready")
    problem(local.get("/v1/review"), 503, "not-ready")
    until(lambda: _equal(value(scrape(local), "airlock_ledger_queue_depth"), 1))
    until(lambda: _equal(value(scrape(local), "airlock_ledger_errors_total") >= 1, True))


def test_a_database_that_hangs_holds_nobody_but_its_own_callers(make_local: Callable[..., Local]) -> None:
    """It takes connections and never says a word; policies, scrapes and the status need no thread that waits for it."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        local = make_local(ledger_url=f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/nothing")

        async def ask() -> list[int]:
            asked = [asyncio.create_task(local.client.get("/v1/review")) for _ in range(100)]
            await asyncio.sleep(0.2)
            began = time.monotonic()
            for path in ("/metrics", "/v1/status", "/v1/policies"):
                assert (await local.client.get(path)).status_code == 200
            assert time.monotonic() - began < 2
            return [answer.status_code for answer in await asyncio.gather(*asked)]

        statuses = Counter(local.run(ask()))
    assert statuses == {503: 64, 429: 36}


def test_counts_and_monitors_survive_a_restart(make_local: Callable[..., Local]) -> None:
    rng = np.random.default_rng(5)
    first = make_local()
    first.classify(instances(draw_traffic(rng, 800, id_share=0.4)))
    first.close()
    second = make_local()
    second.classify(instances(draw_traffic(rng, 200, id_share=0.4)))

    def continued() -> None:
        status = second.get("/v1/status").json()
        assert status["monitors"]["decisions"] == 1000
        assert {alarm["kind"] for alarm in status["alarms"]} >= {"acceptance_recent"}
        total = sum(count for (name, _), count in scrape(second).items() if name == "airlock_decisions_total")
        assert total == 1000
        assert status["ledger"]["written"] == 1000

    until(continued)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_policy_that_returns_is_not_judged_by_its_past_once_more(
    make_local: Callable[..., Local], bundle: Bundle, restarted: bool
) -> None:
    """Under the policy in between this worker decided nothing, so its counters are still those of the first."""
    local = make_local()
    local.classify(instances(draw_traffic(np.random.default_rng(5), 1000, id_share=0.2)))

    def alarms(local: Local, policy: int, decisions: int) -> list[Any]:
        status = local.get("/v1/status").json()
        assert status["policy"]["number"] == policy
        assert status["monitors"]["decisions"] == decisions
        alarms: list[Any] = status["alarms"]
        return alarms

    assert until(lambda: alarms(local, 1, 1000))
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    active = store.active()
    assert active is not None
    store.activate(store.add(active.model_copy(update={"number": None})).number or 0)
    switch(local)
    until(lambda: _equal(alarms(local, 2, 0), []))
    if restarted:
        local.close()
        store.rollback()
        local = make_local()
    else:
        store.rollback()
        switch(local)
    until(lambda: _equal(alarms(local, 1, 0), []))
    local.classify(instances(draw_traffic(np.random.default_rng(6), 100)))
    until(lambda: _equal(alarms(local, 1, 100), []))


def switch(local: Local) -> None:
    """The poll that the event loop, which only turns during requests here, would make by itself."""
    local.worker.gate.swap(*local.worker.gate.load())


def test_a_postgresql_ledger_serves_the_whole_way(make_local: Callable[..., Local], fresh_postgres: str) -> None:
    local = make_local(ledger_url=fresh_postgres, audit_share=1.0)
    local.classify([item(9, 9, 1), item(-9, 9)], ids=["kept", "refused"])
    assert give(local, {"id": "kept", "label": "cat"}).json()["wrong"] is True
    assert [entry["id"] for entry in local.get("/v1/review").json()["items"]] == ["refused"]
    until(lambda: _equal(value(scrape(local), "airlock_audit_labels"), 1))
    until(lambda: _equal(value(scrape(local), "airlock_ledger_written_total"), 2))
    for odd in ({"id": "a\0b"}, {"request_id": "\0"}):
        problem(give(local, {**odd, "label": 0}), 404, "not-found")


def _equal(found: Any, expected: Any) -> None:
    assert found == expected


@pytest.mark.parametrize("kept", ["none", "all"])
def test_inputs_of_requests_reach_the_ledger_only_when_asked(make_local: Callable[..., Local], kept: str) -> None:
    from service.ledger import Database

    local = make_local(ledger_inputs=kept)
    given = [item(label=0, s_id=1.0, s_ood=1.0), item(label=1, s_id=-5.0, s_ood=1.0)]
    assert local.classify(given, ids=["a", "b"]).status_code == 200
    local.close()  # writes what waits
    database = Database(local.settings.state_dir / "ledger.sqlite", create=False)
    with database.read() as connection:
        found = connection.exec_driver_sql("SELECT item_id, input FROM decisions ORDER BY id").all()
    database.close()
    assert [row[0] for row in found] == ["a", "b"]
    if kept == "none":
        assert [row[1] for row in found] == [None, None]
    else:
        np.testing.assert_array_equal([np.load(io.BytesIO(row[1])) for row in found], np.array(given, np.float32))
