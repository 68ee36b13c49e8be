"""HTTP on the wire, bounded: uvicorn's protocol keeps headers of any length and waits for their end for ever.

What is no HTTP at all is refused in the same format as everything else.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.problems import CONTENT_TYPE, Problem, malformed
from service.web.ids import request_id

MAX_HEAD = 65_536
NAME = f"{__name__}:BoundedProtocol"


class BoundedProtocol(HttpToolsProtocol):
    """Gives up on a request whose head (line and headers) is too long or takes longer than an idle connection may."""

    _in_head = True
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # A piece that begins in an earlier request's body is not counted: only where its head goes on is known.
        self._head_bytes = self._head_bytes + len(data) if self._in_head else 0
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        if self._head_bytes > MAX_HEAD:
            self._refuse(Problem(431, "malformed", f"The headers are longer than {MAX_HEAD:,} bytes; send fewer."))
        elif self._head_timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(malformed("This is not a valid HTTP request; check its first line, headers and body length."))

    def _start_timer(self) -> None:
        self._head_timer = self.loop.call_later(self.timeout_keep_alive, self._too_slow)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer and close, past the application: there is no request to give to it."""
        self._stop_timer()
        if self.cycle is None or self.cycle.response_complete:  # else the answer would land inside another one
            self.transport.write(_answer(problem))
        self.transport.close()


def _answer(problem: Problem) -> bytes:
    name = request_id(None)
    body = problem.body(name)
    head: dict[str, Any] = {
        "content-type": CONTENT_TYPE,
        "content-length": len(body),
        "x-request-id": name,
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
        "connection": "close",
    }
    lines = (f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}", *(f"{k}: {v}" for k, v in head.items()))
    return "\r\n".join((*lines, "", "")).encode() + body
