"""The table of routes: every path the service has, with its access and its description."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from calibration.policy import Policy
from service import schemas
from service.gate import ServiceContext
from service.web.arrays import Spec
from service.web.classify import MODES, Classifier
from service.web.docs_page import docs_page
from service.web.health import HealthRoutes
from service.web.inputs import FORM, IMAGES, NPY, RETURNS
from service.web.openapi import describe, example_instance, image_types, instances_schema
from service.web.policies import Policies
from service.web.router import JSON, Answer, Operation, Query, Request, Response, Route
from service.web.table_v2 import v2_routes
from service.web.v2 import V2

_BYTES: Mapping[str, Any] = {"type": "string", "format": "binary"}
_NUMBER = {"number": {"type": "integer", "minimum": 1, "maximum": 999_999_999}}


@dataclass(frozen=True)
class Endpoints:
    """The objects behind the routes."""

    classify: Classifier
    v2: V2
    policies: Policies
    health: HealthRoutes
    schema: Mapping[str, Any]  # BentoML's own description of the service, for its clients


def build_routes(context: ServiceContext, endpoints: Endpoints, extra: list[Route]) -> list[Route]:
    """Every route; those of monitoring come in as `extra`, and the description covers them all."""
    settings = context.settings
    routes = [
        _classify_route(endpoints.classify, context),
        *_policy_routes(endpoints.policies),
        *v2_routes(endpoints.v2, endpoints.health, settings.max_body_bytes),
        *_health_routes(endpoints.health),
        *extra,
    ]
    return [*routes, *_description_routes(routes, endpoints.schema, settings.read_token is not None)]


def _classify_route(classify: Classifier, context: ServiceContext) -> Route:
    spec, settings = context.bundle.manifest.input, context.settings
    body: dict[str, Any] = {JSON: _classify_schema(spec, settings.max_instances), NPY: _BYTES}
    if image_types(spec):
        file = {"type": "array", "items": _BYTES}
        fields = {"files": file, "ids": {"type": "array", "items": {"type": "string"}}, "return": _returns()}
        body |= {FORM: {"type": "object", "properties": fields}, **dict.fromkeys(IMAGES, _BYTES)}
    mode = Query("mode", {"enum": list(MODES)}, "strict: a rejected instance comes back without its label.")
    operation = Operation(
        "Classify instances, or say why not",
        "classify",
        f"The model takes {spec.describe()}. Act on `decision`; the raw label and both scores come along.",
        query=(mode,),
        body=body,
        answers={200: Answer("One prediction an instance, in order", schemas.ClassifyResponse)},
    )
    return Route("POST", "/v1/classify", classify, "read", operation, settings.max_body_bytes, admitted=True)


def _classify_schema(spec: Spec, max_instances: int) -> dict[str, Any]:
    instance = example_instance(spec)
    return {
        "type": "object",
        **({} if instance is None else {"examples": [{"instances": [instance]}]}),
        "required": ["instances"],
        "additionalProperties": False,
        "properties": {
            "instances": instances_schema(spec, max_instances=max_instances),
            "ids": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[A-Za-z0-9._:/-]{1,128}$"},
                "uniqueItems": True,
                "description": "One id an instance.",
            },
            "return": _returns(),
        },
    }


def _returns() -> dict[str, Any]:
    return {"type": "array", "items": {"enum": list(RETURNS)}, "description": "What to return besides the decision."}


def _policy_routes(policies: Policies) -> list[Route]:
    def operation(summary: str, answer: Any, *problems: int, status: int = 200, **more: Any) -> Operation:
        return Operation(summary, "policies", answers={status: Answer(summary, answer)}, problems=problems, **more)

    switched = schemas.Switched
    every = operation("All policies", schemas.PolicyList, 422)
    active = operation("The policy that judges", Policy, 422, 503)
    one = operation("A stored policy", Policy, 404, 409, 422, path=_NUMBER)
    shadow = operation("The policy in the shadow", Policy, 404, 422)
    add = operation("Store a candidate policy", Policy, 409, status=201, body={JSON: Policy})
    choose = operation("Judge a policy in the shadow, or none", switched, 404, 409, body={JSON: schemas.ShadowChoice})
    activate = operation(
        "Make a policy the one that judges",
        switched,
        404,
        409,
        path=_NUMBER,
        body={JSON: schemas.Activation},
        body_required=False,
    )
    rollback = operation(
        "Return to the policy that judged before", switched, 409, body={JSON: schemas.Note}, body_required=False
    )
    return [
        Route("GET", "/v1/policies", policies.list, "read", every),
        Route("POST", "/v1/policies", policies.add, "admin", add, max_body=4 * 1024 * 1024),
        Route("GET", "/v1/policies/active", policies.active, "read", active),
        Route("GET", "/v1/policies/shadow", policies.shadow, "read", shadow),
        Route("PUT", "/v1/policies/shadow", policies.set_shadow, "admin", choose),
        Route("POST", "/v1/policies/rollback", policies.rollback, "admin", rollback),
        Route("GET", "/v1/policies/{number}", policies.get, "read", one),
        Route("POST", "/v1/policies/{number}/activate", policies.activate, "admin", activate),
    ]


def _health_routes(health: HealthRoutes) -> list[Route]:
    live = Operation("Whether the process answers", "health", answers={200: Answer("It does", schemas.Health)})
    ready = Operation(
        "Whether decisions can be made", "health", answers={200: Answer("They can", schemas.Health)}, problems=(503,)
    )
    return [
        Route("GET", "/livez", health.live, "open", live),
        Route("GET", "/healthz", health.live, "open", live),
        Route("GET", "/readyz", health.ready, "open", ready),
    ]


def _description_routes(routes: list[Route], bento_schema: Mapping[str, Any], read_token: bool) -> list[Route]:
    documents: dict[str, bytes] = {"schema": orjson.dumps(bento_schema)}

    async def openapi(request: Request) -> Response:
        return Response(documents["openapi"])

    async def schema(request: Request) -> Response:
        return Response(documents["schema"])

    def operation(summary: str, answer: Answer) -> Operation:
        return Operation(summary, "description", answers={200: answer})

    html = operation("This description as a page", Answer("HTML", {"type": "string"}, "text/html"))
    own = [
        Route("GET", "/", docs_page, "open", html),
        Route("GET", "/docs", docs_page, "open", html),
        Route(
            "GET",
            "/docs.json",
            openapi,
            "read",
            operation("The OpenAPI document", Answer("OpenAPI", {"type": "object"})),
        ),
        Route(
            "GET",
            "/schema.json",
            schema,
            "read",
            operation("BentoML's own description", Answer("For BentoML clients", {"type": "object"})),
        ),
    ]
    documents["openapi"] = orjson.dumps(describe([*routes, *own], read_token=read_token))
    return own
