"""Policies over HTTP: who may, what changes, what is refused, and what the shadow says."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.echo import WIDTH, item, save_echo_bundle
from support.local import ADMIN, Local, problem

from calibration.store import PolicyStore
from models.bundle import Bundle
from models.inputs import TensorInput
from service.schemas import PolicyList

CANDIDATE = {"tau_id": 0.9, "tau_ood": 0.1, "note": "stricter"}
CHANGES = [
    ("POST", "/v1/policies"),
    ("POST", "/v1/policies/1/activate"),
    ("POST", "/v1/policies/rollback"),
    ("PUT", "/v1/policies/shadow"),
]


def decisions(local: Local, *instances: list[float], **more: Any) -> list[dict[str, Any]]:
    predictions: list[dict[str, Any]] = local.classify(list(instances), **more).json()["predictions"]
    return predictions


def test_a_candidate_is_stored_activated_and_rolled_back(local: Local) -> None:
    added = local.admin("POST", "/v1/policies", json=CANDIDATE)
    assert added.status_code == 201
    assert added.headers["location"] == "/v1/policies/2"
    assert (added.json()["number"], added.json()["status"], added.json()["note"]) == (2, "candidate", "stricter")
    assert decisions(local, item(0.7, 0.2))[0]["reason"] == "low_ood"

    switched = local.admin("POST", "/v1/policies/2/activate", json={"note": "try"})
    assert switched.json() == {"active": 2, "shadow": None}
    answer = local.classify([item(0.7, 0.2)]).json()
    assert (answer["policy"], answer["predictions"][0]["reason"]) == (2, "low_id")
    assert local.get("/v1/policies/active").json()["tau_id"] == 0.9
    assert local.get("/v1/policies/1").json()["tau_id"] == 0.5

    listing = local.get("/v1/policies").json()
    PolicyList.model_validate(listing)
    assert [(p["number"], p["active"]) for p in listing["policies"]] == [(1, False), (2, True)]

    assert local.admin("POST", "/v1/policies/rollback").json()["active"] == 1
    assert local.classify([item(0.7, 0.2)]).json()["policy"] == 1
    refusal = problem(local.admin("POST", "/v1/policies/rollback"), 409, "conflict")
    assert "roll back" in refusal["detail"]


def test_a_policy_of_another_bundle_is_refused(local: Local, bundle: Bundle) -> None:
    other = save_echo_bundle(bundle.path.parent / "other", TensorInput(shape=(WIDTH + 1,)))
    refusal = problem(local.admin("POST", "/v1/policies", json={**CANDIDATE, "bundle": other.hash}), 409, "conflict")
    assert "another" in refusal["detail"] or "bundle" in refusal["detail"]
    assert len(local.get("/v1/policies").json()["policies"]) == 1
    same = local.admin("POST", "/v1/policies", json={**CANDIDATE, "bundle": bundle.hash})
    assert same.status_code == 201


def test_a_rejected_policy_needs_force(local: Local) -> None:
    local.admin("POST", "/v1/policies", json={**CANDIDATE, "status": "rejected", "status_reasons": ["too risky"]})
    refusal = problem(local.admin("POST", "/v1/policies/2/activate"), 409, "conflict")
    assert "too risky" in refusal["detail"]
    assert local.admin("POST", "/v1/policies/2/activate", json={"force": True}).json()["active"] == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/policies", {"tau_id": 0.1}, 422),
        ("POST", "/v1/policies", {**CANDIDATE, "tau_id": "high"}, 422),
        ("POST", "/v1/policies", {**CANDIDATE, "surprise": 1}, 422),
        ("POST", "/v1/policies", {**CANDIDATE, "number": 7}, 422),
        ("POST", "/v1/policies", {**CANDIDATE, "status": "validated"}, 422),
        ("POST", "/v1/policies", [CANDIDATE], 422),
        ("POST", "/v1/policies/0/activate", None, 422),
        ("POST", "/v1/policies/x/activate", None, 422),
        ("POST", "/v1/policies/99/activate", None, 404),
        ("POST", "/v1/policies/1/activate", {"force": "yes"}, 422),
        ("POST", "/v1/policies/1/activate", {"strength": 1}, 422),
        ("PUT", "/v1/policies/shadow", {"number": 99}, 404),
        ("PUT", "/v1/policies/shadow", {"number": 0}, 422),
        ("PUT", "/v1/policies/shadow", {"number": True}, 422),
        ("PUT", "/v1/policies/shadow", {}, 422),
    ],
)
def test_a_bad_change_changes_nothing(local: Local, method: str, path: str, body: Any, status: int) -> None:
    before = local.get("/v1/policies").json()
    answer = local.admin(method, path, json=body) if body is not None else local.admin(method, path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert local.get("/v1/policies").json() == before


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"tau_id": 0.9, "tau_ood": 0.1, "tau_id": 0.2}', "'tau_id' stands twice"),
        (b'{"tau_id": 0.9, "tau_ood": 0.1, "parameters": {"a": 1, "a": 2}}', "'a' stands twice"),
        (b'{"note": ' + b"[" * 1000 + b"]" * 1000 + b"}", "nested too deeply"),
    ],
)
def test_an_ambiguous_policy_is_refused(local: Local, body: bytes, words: str) -> None:
    headers = {"Authorization": f"Bearer {ADMIN}", "content-type": "application/json"}
    answer = local.request("POST", "/v1/policies", content=body, headers=headers)
    assert words in problem(answer, 400, "malformed")["detail"]
    assert len(local.get("/v1/policies").json()["policies"]) == 1


def test_no_answer_names_a_directory(local: Local, bundle: Bundle) -> None:
    for method, path in (
        ("GET", "/v1/policies/9"),
        ("POST", "/v1/policies/9/activate"),
        ("POST", "/v1/policies/rollback"),
    ):
        assert str(bundle.path) not in local.admin(method, path).text


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_changes_need_the_admin_token(bundle: Bundle, make_local: Callable[..., Local], method: str, path: str) -> None:
    guarded = make_local(bundle, read_token="read-token-of-the-tests")
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": ADMIN}, {"Authorization": "Basic eA=="}):
        answer = guarded.request(method, path, json=CANDIDATE, headers=header)
        problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    reading = {"Authorization": "Bearer read-token-of-the-tests"}
    problem(guarded.request(method, path, json=CANDIDATE, headers=reading), 401, "unauthorized")
    off = make_local(bundle, admin_token=None)
    problem(off.admin(method, path, json=CANDIDATE), 403, "forbidden")


def test_a_read_token_guards_everything_but_health(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(bundle, read_token="read-token-of-the-tests")
    for path in (
        "/livez",
        "/healthz",
        "/readyz",
        "/v2/health/live",
        "/v2/health/ready",
        "/docs",
        "/v2/models/echo/ready",
    ):
        assert local.get(path).status_code == 200, path
    for path in ("/v1/policies", "/v1/policies/active", "/docs.json", "/v2", "/v2/models/echo", "/schema.json"):
        problem(local.get(path), 401, "unauthorized")
        for token in (ADMIN, "read-token-of-the-tests"):
            assert local.get(path, headers={"Authorization": f"bearer {token}"}).status_code == 200
    problem(local.classify([item(1, 1)]), 401, "unauthorized")


def test_the_shadow_judges_the_same_scores_and_decides_nothing(local: Local) -> None:
    local.admin("POST", "/v1/policies", json=CANDIDATE)
    problem(local.get("/v1/policies/shadow"), 404, "not-found")
    assert local.admin("PUT", "/v1/policies/shadow", json={"number": 2}).json() == {"active": 1, "shadow": 2}
    assert local.get("/v1/policies/shadow").json()["number"] == 2
    assert [p["shadow"] for p in local.get("/v1/policies").json()["policies"]] == [False, True]
    first, second = decisions(local, item(0.7, 0.7), item(0.95, 0.2), **{"return": ["shadow"]})
    assert (first["decision"], first["shadow"]) == ("accept", {"policy": 2, "decision": "reject", "reason": "low_id"})
    assert (second["decision"], second["shadow"]["decision"]) == ("reject", "accept")
    assert "shadow" not in decisions(local, item(0.7, 0.7))[0]
    assert local.admin("PUT", "/v1/policies/shadow", json={"number": None}).json() == {"active": 1, "shadow": None}
    assert "shadow" not in decisions(local, item(0.7, 0.7), **{"return": ["shadow"]})[0]


def test_a_damaged_store_keeps_the_policy_that_judges(local: Local, bundle: Bundle) -> None:
    (bundle.policies_dir / "active").write_text("{")
    local.run(asyncio.sleep(0.6))
    assert local.classify([item(1, 1)]).json()["policy"] == 1
    PolicyStore(bundle.policies_dir, bundle.hash).activate(1)
    local.run(asyncio.sleep(0.6))
    assert local.get("/v1/policies/active").status_code == 200


def test_a_policy_that_is_taken_away_stops_decisions(local: Local, bundle: Bundle) -> None:
    (bundle.policies_dir / "active").unlink()
    local.run(asyncio.sleep(0.6))
    problem(local.classify([item(1, 1)]), 503, "not-ready")
    problem(local.get("/v1/policies/active"), 503, "not-ready")


def test_per_class_thresholds_are_those_in_the_answer(local: Local) -> None:
    per_class = [{"label": 1, "tau_id": 0.9, "tau_ood": None}]
    local.admin("POST", "/v1/policies", json={"tau_id": 0.2, "tau_ood": 0.2, "per_class": per_class})
    local.admin("POST", "/v1/policies/2/activate")
    one, other = decisions(local, item(0.5, 0.5, 0), item(0.5, -5, 1))
    assert (one["decision"], one["tau_id"], one["tau_ood"]) == ("accept", 0.2, 0.2)
    assert (other["reason"], other["tau_id"], other["tau_ood"]) == ("low_id", 0.9, None)
