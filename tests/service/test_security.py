"""What every answer carries, and what no log ever does."""

import json
import logging
import sys
from collections.abc import Callable

import httpx
import pytest
from support.echo import item
from support.local import ADMIN, Local

from models.bundle import Bundle
from service import logs
from service.logs import JsonFormatter, TextFormatter


def some_answers(local: Local) -> list[httpx.Response]:
    return [
        local.classify([item(1, 1)]),
        local.classify([]),
        local.get("/readyz"),
        local.get("/nowhere"),
        local.get("/docs"),
        local.request("DELETE", "/v1/policies"),
        local.request("POST", "/v1/policies", json={}),
    ]


def test_every_answer_has_the_security_headers_and_an_id(local: Local) -> None:
    for answer in some_answers(local):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-request-id"]
        assert len(answer.headers.get_list("content-security-policy")) == 1


def test_head_is_answered_like_get(local: Local) -> None:
    for path in ("/readyz", "/v1/policies", "/docs.json"):
        head, get = local.request("HEAD", path), local.get(path)
        assert head.status_code == get.status_code == 200
        assert head.headers["content-length"] == get.headers["content-length"]


def test_logs_hold_requests_but_never_tokens(
    bundle: Bundle, make_local: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    local = make_local(bundle)
    local.web._access_log = True
    with caplog.at_level(logging.DEBUG):
        local.admin("POST", "/v1/policies", json={"tau_id": 0.1, "tau_ood": 0.1})
        local.get("/v1/policies?token=x%0Ainjected")
    lines = [record.getMessage() for record in caplog.records if record.name == "airlock.access"]
    assert lines[0].startswith("POST /v1/policies 201 ")
    assert all(ADMIN not in f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert not any("\n" in line for line in lines)


def test_a_failure_inside_is_a_500_without_details(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise RuntimeError("the secret inside")

    monkeypatch.setattr(local.worker.gate, "judge", explode)
    answer = local.classify([item(1, 1)])
    assert answer.status_code == 500
    assert answer.json()["type"] == "urn:airlock:problem:internal"
    assert "secret" not in answer.text


def test_an_observer_that_fails_costs_nobody_an_answer(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def start(self) -> None: ...

        def observe(self, batch: object) -> None:
            raise RuntimeError("broken")

        def policy_changed(self, view: object) -> None:
            raise RuntimeError("broken")

        async def stop(self) -> None: ...

    local.worker.gate.observers = [Broken()]
    assert local.classify([item(1, 1)]).status_code == 200
    local.admin("POST", "/v1/policies", json={"tau_id": 0.1, "tau_ood": 0.1})
    assert local.admin("POST", "/v1/policies/2/activate").json()["active"] == 2
    assert "observer failed" in caplog.text


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("airlock.test", logging.WARNING, __file__, 1, message, None, None)
    made.__dict__.update(extra)
    return made


def test_json_logs_are_one_object_a_line_with_their_fields() -> None:
    line = JsonFormatter().format(record("two\nlines", request_id="abc", status=200))
    document = json.loads(line)
    assert "\n" not in line
    assert document["message"] == "two\nlines"
    assert (document["level"], document["logger"]) == ("warning", "airlock.test")
    assert (document["request_id"], document["status"]) == ("abc", 200)


def test_json_logs_hold_the_traceback() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        failed = record("it failed")
        failed.exc_info = sys.exc_info()
    assert "ValueError: why" in json.loads(JsonFormatter().format(failed))["exception"]


def test_text_logs_keep_a_message_on_its_line() -> None:
    assert "\n" not in TextFormatter().format(record("forged\n2026 INFO all is well"))


def test_the_levels_of_others_are_raised() -> None:
    root, before = logging.root, list(logging.root.handlers)
    try:
        logs.configure("json", "info")
        assert not logging.getLogger("uvicorn.access").hasHandlers()
        assert logging.getLogger("bentoml").getEffectiveLevel() == logging.WARNING
        assert logging.getLogger("airlock.gate").isEnabledFor(logging.INFO)
    finally:
        root.handlers[:] = before
