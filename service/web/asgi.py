"""The ASGI application: finds the route, checks access, admits, answers; every refusal leaves as a problem.

It stands before BentoML's own application, which keeps the process's life cycle (`lifespan`) but sees no request:
its middleware stack costs more than the whole of a small model's answer.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from calibration.errors import CalibrationError
from models.errors import InputError, ModelsError, RuntimeFault
from service import problems
from service.gate import NoPolicyError
from service.problems import Problem
from service.web.access import Tokens
from service.web.admission import Admission
from service.web.ids import request_id
from service.web.router import Disconnected, Receive, Request, Response, Route, Router, Scope, Send

logger = logging.getLogger("airlock.http")
access_logger = logging.getLogger("airlock.access")

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

NO_POLICY = "No policy is active, so nothing can be decided; activate one with `airlock policies` and try again."
_TIMEOUT_HEADER = b"airlock-timeout-ms"
_SECURITY: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
_HTML_SECURITY: list[tuple[bytes, bytes]] = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]


class WebApp:
    """Answers HTTP itself and leaves everything else to `inner`."""

    def __init__(self, inner: ASGIApp, *, access_log: bool = False) -> None:
        self._inner = inner
        self._router: Router | None = None
        self._access_log = access_log
        self.draining = False

    def open(self, router: Router, tokens: Tokens, admission: Admission) -> None:
        """Start answering; until then the server has not finished its start-up and no request arrives."""
        self._tokens = tokens
        self._admission = admission
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self._inner(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers = dict(scope["headers"])
        request = Request(scope, receive, request_id(headers.get(b"x-request-id")), headers)
        try:
            response = await self._answer(request)
        except Disconnected:
            return
        await self._send(request, response, send)
        if self._access_log:
            _log_access(request, response, time.perf_counter() - started)

    async def _answer(self, request: Request) -> Response:
        try:
            return await self._dispatch(request)
        except Problem as problem:
            return _refuse(request, problem)
        except NoPolicyError:
            return _refuse(request, problems.not_ready(NO_POLICY))
        except InputError as refusal:
            return _refuse(request, problems.invalid_input(str(refusal), index=refusal.index))
        except RuntimeFault as fault:
            return _refuse(request, _runtime_problem(fault))
        except (ModelsError, CalibrationError) as refusal:
            return _refuse(request, problems.invalid_parameter(str(refusal)))
        except Disconnected:
            raise
        except Exception:
            logger.exception("request %s failed", request.request_id)
            detail = "The service failed on this request; its log says why under the request id."
            return _refuse(request, Problem(500, "internal", detail))

    async def _dispatch(self, request: Request) -> Response:
        scope = request.scope
        if self._router is None:
            raise problems.not_ready("The service is starting; try again in a moment.")
        route, request.path_params = self._router.find(scope["method"], scope["path"])
        self._tokens.check(route.access, request.headers)
        request.max_body = route.max_body
        if route.admitted:
            return await self._admitted(route, request)
        return await route.handler(request)

    async def _admitted(self, route: Route, request: Request) -> Response:
        declared = int(request.headers.get(b"content-length", b"0"))
        ticket = request.ticket = self._admission.enter(min(declared, route.max_body))
        try:
            if _TIMEOUT_HEADER in request.headers:
                ticket.seconds = min(ticket.seconds, _timeout(request.headers[_TIMEOUT_HEADER]))
            # Whatever else arrived in this pass of the event loop is counted before any of it is worked on.
            await asyncio.sleep(0)
            return await route.handler(request)
        except asyncio.CancelledError:
            if not ticket.expired:
                raise
            raise ticket.give_up() from None
        finally:
            self._admission.leave(ticket)

    async def _send(self, request: Request, response: Response, send: Send) -> None:
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", b"%d" % len(response.body)),
            (b"x-request-id", request.request_id.encode()),
            *(_HTML_SECURITY if response.content_type.startswith("text/html") else _SECURITY),
            *response.headers,
        ]
        if self.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})


def _refuse(request: Request, problem: Problem) -> Response:
    if request.scope["path"].startswith("/v2"):
        # The Open Inference Protocol has an error member of its own, which its clients read.
        problem.extra["error"] = problem.detail
    return Response(problem.body(request.request_id), problem.status, problems.CONTENT_TYPE, problem.headers)


def _runtime_problem(fault: RuntimeFault) -> Problem:
    """A value that the graph itself refuses is the caller's; anything else is ours."""
    if type(fault.__cause__).__name__ == "InvalidArgument":
        return problems.invalid_input(f"The model cannot take these values: {fault}")
    logger.error("%s", fault)
    return Problem(500, "internal", "The model could not be run; the service's log says why.")


def _timeout(given: bytes) -> float:
    if not given.isdigit() or not 3 <= len(given) <= 9:
        raise problems.invalid_parameter(
            "The header Airlock-Timeout-Ms is a whole number of milliseconds from 100 to 999999999."
        )
    return int(given) / 1000


def _log_access(request: Request, response: Response, seconds: float) -> None:
    method = request.scope["method"]
    path = request.scope["raw_path"].decode("latin-1")  # still percent-encoded: no line breaks get in the log
    milliseconds = round(seconds * 1000, 3)
    extra = {"method": method, "path": path, "status": response.status, "milliseconds": milliseconds}
    message = "%s %s %d %.3f ms"
    access_logger.info(
        message, method, path, response.status, milliseconds, extra={**extra, "request_id": request.request_id}
    )
