"""The OpenAPI 3.1 document, made from the route table: what is routed is described, and nothing else is."""

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from models.inputs import ImageInput
from service.problems import CONTENT_TYPE, TITLES
from service.schemas import ProblemDocument, V2Error
from service.web.arrays import Spec
from service.web.router import Operation, Query, Route

_SHORT = 1024
_REFERENCE = "#/components/schemas/{model}"
_STATUS_TITLES = {
    400: TITLES["malformed"],
    401: TITLES["unauthorized"],
    403: TITLES["forbidden"],
    404: TITLES["not-found"],
    405: TITLES["method-not-allowed"],
    408: TITLES["timeout"],
    409: TITLES["conflict"],
    413: TITLES["too-large"],
    415: TITLES["unsupported-media-type"],
    422: TITLES["invalid-input"],
    429: TITLES["overloaded"],
    500: TITLES["internal"],
    503: TITLES["not-ready"],
}
_REQUEST_ID = Query("X-Request-ID", {"type": "string"}, "Your id for this request, taken over when it is well formed.")
_TIMEOUT = Query(
    "Airlock-Timeout-Ms",
    {"type": "integer", "minimum": 100, "maximum": 999_999_999},
    "Give the request up after so many milliseconds, if the server's own limit is not shorter.",
)


def describe(routes: Iterable[Route], *, read_token: bool) -> dict[str, Any]:
    """The whole document."""
    routes = tuple(routes)
    references, definitions = models_json_schema(_models(routes), ref_template=_REFERENCE, by_alias=True)
    writer = _Writer(references, read_token)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = writer.operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Airlock",
            "version": version("airlock-gate"),
            "description": "A gate with two doors in front of a classifier: act on `decision`.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def instances_schema(spec: Spec, *, max_instances: int) -> dict[str, Any]:
    """The JSON schema of `instances` for a bundle's input."""
    schema = _number(spec)
    for size in reversed(spec.item_shape):
        bounds = {"minItems": 1} if size is None else {"minItems": size, "maxItems": size}
        schema = {"type": "array", "items": schema, **bounds}
    return {"type": "array", "items": schema, "minItems": 1, "maxItems": max_instances}


def example_instance(spec: Spec) -> Any:
    """A valid instance for the description, where it is short enough to be read."""
    example = spec.example()[0]
    return example.tolist() if example.size <= _SHORT else None


def image_types(spec: Spec) -> bool:
    """Whether the bundle takes encoded images."""
    return isinstance(spec, ImageInput)


def _number(spec: Spec) -> dict[str, Any]:
    dtype = spec.np_dtype
    if dtype.kind == "f":
        limit = float(np.finfo(dtype).max)
        return {"type": "number", "minimum": -limit, "maximum": limit}
    limits = np.iinfo(dtype)
    return {"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}


class _Writer:
    """Writes operations; knows how each model is referred to when it is sent and when it is received."""

    def __init__(self, references: Mapping[Any, dict[str, Any]], read_token: bool) -> None:
        self._references = references
        self._read_token = read_token

    def operation(self, route: Route) -> dict[str, Any]:
        operation = route.operation
        document: dict[str, Any] = {
            "summary": operation.summary,
            "tags": [operation.tag],
            "operationId": _operation_id(route),
            "parameters": _parameters(route, operation),
            "responses": self._responses(route, operation),
        }
        if operation.description:
            document["description"] = operation.description
        if operation.body is not None:
            document["requestBody"] = {
                "required": operation.body_required,
                "content": {kind: self._content(schema, "validation") for kind, schema in operation.body.items()},
            }
        if self._guarded(route):
            document["security"] = [{"bearer": []}]
        return document

    def _responses(self, route: Route, operation: Operation) -> dict[str, Any]:
        responses: dict[str, Any] = {}
        for status, answer in operation.answers.items():
            kinds = {answer.content_type: answer.schema, **answer.more}
            content = {kind: self._content(schema, "serialization") for kind, schema in kinds.items()}
            responses[str(status)] = {"description": answer.description, "content": content}
        error = V2Error if route.path.startswith("/v2") else ProblemDocument
        for status in sorted(self._problem_statuses(route, operation)):
            content = {CONTENT_TYPE: self._content(error, "serialization")}
            responses[str(status)] = {"description": _STATUS_TITLES[status], "content": content}
        return responses

    def _problem_statuses(self, route: Route, operation: Operation) -> set[int]:
        statuses = {*operation.problems, 500}
        if self._guarded(route):
            statuses |= {401, 403} if route.access == "admin" else {401}
        if operation.body is not None:
            statuses |= {400, 413, 415, 422}
        if route.admitted:
            statuses |= {408, 429, 503}
        return statuses | {422} if operation.query else statuses

    def _guarded(self, route: Route) -> bool:
        return route.access == "admin" or (route.access == "read" and self._read_token)

    def _content(self, schema: Any, mode: JsonSchemaMode) -> dict[str, Any]:
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            return {"schema": self._references[schema, mode]}
        return {"schema": dict(schema or {})}


def _operation_id(route: Route) -> str:
    words = route.path.strip("/").replace("{", "").replace("}", "").replace(".", "_").replace("/", "_") or "index"
    return f"{route.method.lower()}_{words}"


def _parameters(route: Route, operation: Operation) -> list[dict[str, Any]]:
    headers = (_REQUEST_ID, _TIMEOUT, *operation.headers) if route.admitted else operation.headers
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("{")]
    return [
        *(
            {"name": name, "in": "path", "required": True, "schema": operation.path.get(name, {"type": "string"})}
            for name in names
        ),
        *(_parameter(query, "query") for query in operation.query),
        *(_parameter(header, "header") for header in headers),
    ]


def _parameter(query: Query, where: str) -> dict[str, Any]:
    return {"name": query.name, "in": where, "schema": query.schema, "description": query.description}


def _models(routes: Iterable[Route]) -> list[tuple[type[BaseModel], JsonSchemaMode]]:
    models: dict[tuple[type[BaseModel], JsonSchemaMode], None] = {
        (ProblemDocument, "serialization"): None,
        (V2Error, "serialization"): None,
    }
    for route in routes:
        received = [*(route.operation.body or {}).values()]
        sent = [s for a in route.operation.answers.values() for s in (a.schema, *a.more.values())]
        for schemas, mode in ((received, "validation"), (sent, "serialization")):
            for schema in schemas:
                if isinstance(schema, type) and issubclass(schema, BaseModel):
                    models[schema, mode] = None  # type: ignore[index]
    return list(models)
