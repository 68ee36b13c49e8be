"""Requests, responses, routes and how a path finds its route.

The table of routes is the only list there is: the dispatcher, the access rules and the OpenAPI document all read it.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qsl

import orjson

from service.problems import Problem, invalid_parameter, malformed
from service.web.admission import Ticket

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Access = Literal["open", "read", "admin"]

JSON = "application/json"
_REMEMBERED = 256


class Disconnected(Exception):
    """The caller went away before the body was complete."""


class Response:
    """A complete answer."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes,
        status: int = 200,
        content_type: str = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers = headers


def json_response(document: Any, status: int = 200, *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    """A JSON answer; NaN and infinities become null."""
    return Response(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), status, headers=headers)


class Request:
    """One HTTP request; the body is read on demand and never beyond the route's limit."""

    __slots__ = ("_receive", "headers", "max_body", "path_params", "request_id", "scope", "ticket")

    def __init__(self, scope: Scope, receive: Receive, request_id: str, headers: dict[bytes, bytes]) -> None:
        self.scope = scope
        self._receive = receive
        self.request_id = request_id
        self.headers = headers
        self.path_params: dict[str, str] = {}
        self.max_body = 0
        self.ticket: Ticket | None = None

    @property
    def content_type(self) -> str:
        """The media type without its parameters, in lower case."""
        return self.headers.get(b"content-type", b"").split(b";", 1)[0].strip().lower().decode("latin-1")

    @property
    def query(self) -> dict[str, str]:
        """The query string; a key given twice is refused."""
        pairs = parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        result = dict(pairs)
        if len(result) != len(pairs):
            raise invalid_parameter("A query parameter is given twice; give each one once.")
        return result

    def query_only(self, *allowed: str) -> dict[str, str]:
        """The query string, refused when it has a key that the route does not know."""
        if not self.scope["query_string"]:
            return {}
        query = self.query
        for key in query:
            if key not in allowed:
                known = ", ".join(allowed) or "none"
                raise invalid_parameter(f"The query parameter {key[:40]!r} is unknown here; known are: {known}.")
        return query

    async def body(self) -> bytes:
        """The whole body; 413 as soon as it is known to be too long."""
        declared = self.headers.get(b"content-length")
        if declared is not None and int(declared) > self.max_body:
            raise self._too_large(int(declared))
        if (encoding := self.headers.get(b"content-encoding", b"identity").lower()) != b"identity":
            raise Problem(
                415,
                "unsupported-media-type",
                f"The content encoding {encoding[:40].decode('latin-1')!r} is not supported; send the body as it is.",
            )
        first = await self._part()
        body: bytes = first["body"]
        if first["more_body"]:
            body = await self._rest(body)
        elif len(body) > self.max_body:
            raise self._too_large(len(body))
        if self.ticket is not None:
            self.ticket.reading = False
        return body

    async def _rest(self, start: bytes) -> bytes:
        parts, total, more = [start], len(start), True
        while True:
            if total > self.max_body:
                raise self._too_large(total)
            if self.ticket is not None:
                self.ticket.hold(total)
            if not more:
                return b"".join(parts)
            message = await self._part()
            parts.append(message["body"])
            total += len(message["body"])
            more = message["more_body"]

    async def _part(self) -> Mapping[str, Any]:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        return message

    async def json(self) -> Any:
        """The body as JSON."""
        if self.content_type != JSON:
            raise unsupported(self.content_type, (JSON,))
        return parse_json(await self.body())

    def _too_large(self, size: int) -> Problem:
        return Problem(
            413,
            "too-large",
            f"A body of at least {size:,} bytes arrived; at most {self.max_body:,} are allowed, so send fewer items.",
        )


def parse_json(body: bytes) -> Any:
    """JSON, strictly: no NaN, no trailing text, UTF-8 only."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as fault:
        raise malformed(f"The body is not valid JSON: {fault}.") from None


def unsupported(content_type: str, allowed: Iterable[str]) -> Problem:
    """415 with what would do."""
    arrived = f"The content type {content_type[:60]!r}" if content_type else "A body without a content type"
    return Problem(
        415,
        "unsupported-media-type",
        f"{arrived} arrived; this route takes {', '.join(allowed)}.",
        headers=((b"accept", ", ".join(allowed).encode()),),
    )


Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Query:
    """A query parameter for the OpenAPI document."""

    name: str
    schema: Mapping[str, Any]
    description: str


@dataclass(frozen=True)
class Answer:
    """A documented response: `schema` is a pydantic model, a JSON schema, or None for an opaque body."""

    description: str
    schema: Any = None
    content_type: str = JSON
    more: Mapping[str, Any] = field(default_factory=dict)  # further content types


@dataclass(frozen=True)
class Operation:
    """What OpenAPI says of a route; problems name the statuses that the route itself can give."""

    summary: str
    tag: str
    description: str = ""
    query: tuple[Query, ...] = ()
    headers: tuple[Query, ...] = ()
    path: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    body_required: bool = True
    answers: Mapping[int, Answer] = field(default_factory=dict)
    problems: tuple[int, ...] = ()


@dataclass(frozen=True)
class Route:
    """One method of one path; `{name}` in the path matches one segment."""

    method: str
    path: str
    handler: Handler
    access: Access
    operation: Operation
    max_body: int = 65_536
    admitted: bool = False


class Router:
    """Finds the route: a dictionary for fixed paths, patterns for the few with parameters."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        self._matched: dict[str, tuple[dict[str, Route], dict[str, str]]] = {}
        compiled: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            methods = self._methods(route.path, compiled)
            methods[route.method] = route
            if route.method == "GET":
                methods.setdefault("HEAD", route)

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """The route and its path parameters, or a 404 or 405 problem."""
        methods = self._fixed.get(path)
        parameters: dict[str, str] = {}
        if methods is None:
            methods, parameters = self._match(path)
        route = methods.get(method)
        if route is None:
            raise _wrong_method(method, methods)
        return route, parameters

    def _methods(self, path: str, compiled: dict[str, dict[str, Route]]) -> dict[str, Route]:
        if "{" not in path:
            return self._fixed.setdefault(path, {})
        if path not in compiled:
            pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(path))
            compiled[path] = {}
            self._patterns.append((re.compile(pattern), compiled[path]))
        return compiled[path]

    def _match(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        """Patterns, tried once a path: callers of a model repeat its path for ever."""
        found = self._matched.get(path)
        if found is None:
            found = self._try(path)
            if len(self._matched) < _REMEMBERED:
                self._matched[path] = found
        return found

    def _try(self, path: str) -> tuple[dict[str, Route], dict[str, str]]:
        for pattern, methods in self._patterns:
            match = pattern.fullmatch(path)
            if match is not None:
                return methods, match.groupdict()
        raise Problem(404, "not-found", "No route has this path; GET /docs.json lists those there are.")


def _wrong_method(method: str, methods: Mapping[str, Route]) -> Problem:
    allowed = ", ".join(sorted(methods))
    return Problem(
        405,
        "method-not-allowed",
        f"The method {method[:20]} is not allowed here; allowed are: {allowed}.",
        headers=((b"allow", allowed.encode()),),
    )
