"""Overload: a bounded queue, bounded bytes, deadlines; and afterwards everything is as before."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import orjson
import pytest
from support.echo import item
from support.local import Local, problem

from models.bundle import Bundle

BODY = orjson.dumps({"instances": [item(1, 1)]})
JSON = {"content-type": "application/json"}


async def slowly(body: bytes, seconds: float) -> AsyncIterator[bytes]:
    yield body[:-3]
    await asyncio.sleep(seconds)
    yield body[-3:]


def post(local: Local, content: Any, **headers: str) -> Any:
    return local.client.post("/v1/classify", content=content, headers={**JSON, **headers})


def test_what_exceeds_the_queue_is_refused_at_once_with_retry_after(
    bundle: Bundle, make_local: Callable[..., Local]
) -> None:
    local = make_local(bundle, queue=3)

    async def crowd() -> list[httpx.Response]:
        return await asyncio.gather(*(post(local, slowly(BODY, 0.3)) for _ in range(10)))

    answers = local.run(crowd())
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 7
    for answer in answers:
        if answer.status_code == 429:
            assert "3 requests" in problem(answer, 429, "overloaded")["detail"]
            assert int(answer.headers["retry-after"]) >= 1
    assert local.worker.admission.in_flight == 0
    assert local.worker.admission.pending_bytes == 0
    assert local.run(post(local, BODY)).status_code == 200


def test_quick_requests_of_one_moment_are_counted_together(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(bundle, queue=5)

    async def crowd() -> list[httpx.Response]:
        return await asyncio.gather(*(post(local, BODY) for _ in range(50)))

    statuses = [answer.status_code for answer in local.run(crowd())]
    assert statuses.count(200) >= 5
    assert set(statuses) == {200, 429}


@pytest.mark.parametrize("declared", [True, False])
def test_the_bytes_under_way_are_bounded(bundle: Bundle, make_local: Callable[..., Local], declared: bool) -> None:
    local = make_local(bundle, max_pending_bytes=4000)
    body = BODY + b" " * 3000
    headers = {"content-length": str(len(body))} if declared else {}

    async def crowd() -> list[httpx.Response]:
        return await asyncio.gather(*(post(local, slowly(body, 0.2), **headers) for _ in range(4)))

    statuses = [answer.status_code for answer in local.run(crowd())]
    assert statuses.count(200) >= 1
    assert 429 in statuses
    assert local.worker.admission.pending_bytes == 0
    assert local.run(post(local, body)).status_code == 200


def test_a_body_that_dribbles_in_is_given_up(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(bundle, timeout_seconds=0.2)
    started = time.monotonic()
    answer = local.run(post(local, slowly(BODY, 30)))
    problem(answer, 408, "timeout")
    assert time.monotonic() - started < 5
    assert local.worker.admission.in_flight == 0


class Stuck:
    """An engine that never answers."""

    async def score(self, x: Any, *, probabilities: bool = False) -> Any:
        await asyncio.sleep(60)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("settings", "headers"), [(0.2, {}), (30, {"airlock-timeout-ms": "200"})])
def test_a_request_past_its_deadline_is_given_up(
    bundle: Bundle, make_local: Callable[..., Local], settings: float, headers: dict[str, str]
) -> None:
    local = make_local(bundle, timeout_seconds=settings)
    local.worker.classifier._engine = Stuck()
    answer = local.run(post(local, BODY, **headers))
    assert "0.2 s" in problem(answer, 503, "deadline")["detail"]
    assert answer.headers["retry-after"]
    assert local.worker.admission.in_flight == 0


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "", "99", "9" * 30])
def test_a_malformed_deadline_is_refused(local: Local, value: str) -> None:
    answer = local.run(post(local, BODY, **{"airlock-timeout-ms": value}))
    problem(answer, 422, "invalid-parameter")


def test_a_caller_who_leaves_frees_their_place(local: Local) -> None:
    async def leave() -> None:
        messages = iter([{"type": "http.request", "body": BODY[:10], "more_body": True}, {"type": "http.disconnect"}])

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            raise AssertionError("nobody is there to answer")

        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]
        scope = {"type": "http", "method": "POST", "path": "/v1/classify", "query_string": b"", "headers": headers}
        await local.web(scope, receive, send)

    local.run(leave())
    assert local.worker.admission.in_flight == 0
    assert local.worker.admission.pending_bytes == 0
