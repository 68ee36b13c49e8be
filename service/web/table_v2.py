"""The routes of the Open Inference Protocol V2."""

from collections.abc import Mapping
from typing import Any

from service import schemas
from service.web.health import HealthRoutes
from service.web.router import JSON, Answer, Operation, Query, Route
from service.web.v2 import BINARY, V2
from service.web.v2_codec import DATATYPES, OUTPUTS

_BYTES: Mapping[str, Any] = {"type": "string", "format": "binary"}
_JSON_SIZE = Query(
    "Inference-Header-Content-Length",
    {"type": "integer", "minimum": 0},
    "Bytes of JSON before the binary tensors, where there are any.",
)


def v2_routes(v2: V2, health: HealthRoutes, max_body: int) -> list[Route]:
    """Server, health, and the model with and without its version."""
    live = _operation("Whether the process answers", schemas.Health)
    ready = _operation("Whether decisions can be made", schemas.Health, 503)
    model = _operation("The model's tensors", schemas.V2Model, 404)
    model_ready = _operation("Whether the model answers", schemas.Health, 404, 503)
    infer = _infer_operation(v2)
    routes = [
        Route("GET", "/v2", v2.server, "read", _operation("Who answers", schemas.V2Server)),
        Route("GET", "/v2/health/live", health.live, "open", live),
        Route("GET", "/v2/health/ready", health.ready, "open", ready),
    ]
    for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
        routes += [
            Route("GET", path, v2.metadata, "read", model),
            Route("GET", f"{path}/ready", v2.model_ready, "open", model_ready),
            Route("POST", f"{path}/infer", v2.infer, "read", infer, max_body, admitted=True),
        ]
    return routes


def _operation(summary: str, answer: Any, *problems: int) -> Operation:
    return Operation(summary, "v2", answers={200: Answer(summary, answer)}, problems=problems)


def _infer_operation(v2: V2) -> Operation:
    return Operation(
        "Label, scores and decision of every instance",
        "v2",
        headers=(_JSON_SIZE,),
        body={JSON: _request_schema(v2), BINARY: _BYTES},
        answers={
            200: Answer("The tensors asked for", schemas.V2InferResponse, more={BINARY: _BYTES}),
        },
        problems=(404,),
    )


def _request_schema(v2: V2) -> dict[str, Any]:
    parameters = {"type": "object"}
    output = {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"name": {"enum": list(OUTPUTS)}, "parameters": parameters},
    }
    tensor = {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "additionalProperties": False,
        "properties": {
            "name": {"const": v2.describe()["inputs"][0]["name"]},
            "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "datatype": {"enum": list(DATATYPES)},
            "parameters": parameters,
            "data": {"type": "array"},
        },
    }
    instance = v2.example()
    return {
        "type": "object",
        **({} if instance is None else {"examples": [{"inputs": [instance]}]}),
        "required": ["inputs"],
        "additionalProperties": False,
        "properties": {
            "id": {"type": "string", "maxLength": 256},
            "parameters": parameters,
            "inputs": {"type": "array", "items": tensor, "minItems": 1, "maxItems": 1},
            "outputs": {"type": "array", "items": output},
        },
    }
