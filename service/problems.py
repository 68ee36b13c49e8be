"""Every refusal over HTTP in one format: RFC 9457 problem JSON.

`type` is a URN from the closed list below, `detail` one sentence (what arrived, what is allowed, what to do),
`instance` names the request, `index` the offending item where one is to blame.
"""

from typing import Any, Final

import orjson

CONTENT_TYPE: Final = "application/problem+json"

TITLES: Final[dict[str, str]] = {
    "malformed": "The request cannot be read",
    "unauthorized": "A valid bearer token is needed",
    "forbidden": "This route is switched off",
    "not-found": "There is nothing here",
    "method-not-allowed": "The route does not take this method",
    "timeout": "The request body arrived too slowly",
    "conflict": "The request contradicts the present state",
    "too-large": "The request body is too large",
    "unsupported-media-type": "The content type is not supported",
    "invalid-input": "The input does not fit the model",
    "invalid-parameter": "A parameter is not valid",
    "overloaded": "The service is busy",
    "internal": "The service failed",
    "not-ready": "The service is not ready",
    "deadline": "The deadline passed",
}


class Problem(Exception):
    """A refusal to raise from any handler; `extra` members are added to the document as they are."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = headers
        self.extra = {key: value for key, value in extra.items() if value is not None}

    def document(self, request_id: str) -> dict[str, Any]:
        """The problem as a JSON object."""
        return {
            "type": f"urn:airlock:problem:{self.kind}",
            "title": TITLES[self.kind],
            "status": self.status,
            "detail": self.detail,
            "instance": f"urn:airlock:request:{request_id}",
            **self.extra,
        }

    def body(self, request_id: str) -> bytes:
        """The problem as it goes over the wire."""
        return orjson.dumps(self.document(request_id))


def malformed(detail: str, *, index: int | None = None) -> Problem:
    """400: the bytes do not say what their content type promises."""
    return Problem(400, "malformed", detail, index=index)


def invalid_input(detail: str, *, index: int | None = None) -> Problem:
    """422: readable, but not what the model takes."""
    return Problem(422, "invalid-input", detail, index=index)


def invalid_parameter(detail: str) -> Problem:
    """422: an option outside its range."""
    return Problem(422, "invalid-parameter", detail)


def not_ready(detail: str) -> Problem:
    """503: nothing may be decided now."""
    return Problem(503, "not-ready", detail, headers=((b"retry-after", b"1"),))


def overloaded(detail: str) -> Problem:
    """429: refused unread, to keep what was admitted fast."""
    return Problem(429, "overloaded", detail, headers=((b"retry-after", b"1"),))


def deadline_passed(seconds: float) -> Problem:
    """503: admitted, but not answered in time."""
    return Problem(
        503,
        "deadline",
        f"The request was not answered within its {seconds:g} s; send it again later or allow more time.",
        headers=((b"retry-after", b"1"),),
    )
