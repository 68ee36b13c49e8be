"""Policies at run time: list, add, activate, roll back, shadow. Files change under the store's lock; every worker
notices within its polling interval, this one at once."""

import asyncio
import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from calibration.errors import CalibrationError, PolicyError, StoreError
from calibration.policy import Policy
from calibration.store import PolicyStore
from service.gate import Gate
from service.problems import Problem, invalid_parameter, malformed, not_ready
from service.schemas import Activation, Note, ShadowChoice
from service.web.classify import thresholds_json
from service.web.router import JSON, Request, Response, json_response, parse_json, unsupported

_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")


class Policies:
    """The administration of one policy store."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._store: PolicyStore = gate.store

    async def list(self, request: Request) -> Response:
        """Every stored policy in short."""
        request.query_only()
        try:
            return json_response(await asyncio.to_thread(self._summaries))
        except CalibrationError as fault:
            raise Problem(500, "internal", _sentence(fault, self._store)) from None

    async def active(self, request: Request) -> Response:
        """The policy that judges, whole."""
        request.query_only()
        policy = self._gate.view.policy
        if policy is None:
            raise not_ready("No policy is active; add and activate one.")
        return Response(policy.to_json())

    async def get(self, request: Request) -> Response:
        """A stored policy, whole."""
        request.query_only()
        number = _number(request)
        policy = await self._off_loop(lambda: self._known(number))
        return Response(policy.to_json())

    async def shadow(self, request: Request) -> Response:
        """The policy in the shadow, whole."""
        request.query_only()
        policy = self._gate.view.shadow
        if policy is None:
            raise Problem(404, "not-found", "No policy is in the shadow; PUT a number here to set one.")
        return Response(policy.to_json())

    async def add(self, request: Request) -> Response:
        """Store a candidate under the next number."""
        request.query_only()
        if request.content_type != JSON:
            raise unsupported(request.content_type, (JSON,))
        candidate = _parse(Policy, await request.body())
        if candidate.number is not None:
            raise invalid_parameter('The store numbers policies itself; leave "number" out.')
        if candidate.status == "validated" and candidate.evidence is None:
            raise invalid_parameter('A policy that says it is validated must carry its evidence; leave "status" out.')
        policy = await self._off_loop(lambda: self._add(candidate))
        location = (b"location", b"/v1/policies/%d" % (policy.number or 0))
        return Response(policy.to_json(), 201, headers=(location,))

    async def activate(self, request: Request) -> Response:
        """Make a stored policy the one that judges."""
        request.query_only()
        number = _number(request)
        options = await _options(request, Activation)

        def switch() -> None:
            self._known(number)
            self._store.activate(number, force=options.force, note=options.note)

        return await self._switch(switch)

    async def rollback(self, request: Request) -> Response:
        """Return to the policy that judged before."""
        request.query_only()
        options = await _options(request, Note)
        return await self._switch(lambda: self._store.rollback(note=options.note))

    async def set_shadow(self, request: Request) -> Response:
        """Choose the policy that is judged in the shadow, or none."""
        request.query_only()
        choice = await _options(request, ShadowChoice, required=True)

        def point() -> None:
            if choice.number is not None:
                self._known(choice.number)
            self._gate.shadow.write(choice.number)

        return await self._switch(point)

    async def _switch(self, change: Callable[[], Any]) -> Response:
        await self._off_loop(change)
        self._gate.swap(*await asyncio.to_thread(self._gate.load))
        view = self._gate.view
        return json_response(
            {
                "active": view.policy.number if view.policy else None,
                "shadow": view.shadow.number if view.shadow else None,
            }
        )

    def _summaries(self) -> dict[str, Any]:
        view = self._gate.view
        active = view.policy.number if view.policy else None
        shadow = view.shadow.number if view.shadow else None
        return {
            "active": active,
            "shadow": shadow,
            "policies": [
                {
                    "number": policy.number,
                    "status": policy.status,
                    "method": policy.method,
                    **thresholds_json(policy),
                    "created_at": policy.created_at,
                    "active": policy.number == active,
                    "shadow": policy.number == shadow,
                }
                for policy in self._store.list()
            ],
        }

    def _add(self, candidate: Policy) -> Policy:
        try:
            candidate.check_bundle(self._store.bundle)
        except PolicyError as refusal:
            raise Problem(409, "conflict", _sentence(refusal, self._store)) from None
        return self._store.add(candidate)

    def _known(self, number: int) -> Policy:
        try:
            return self._store.get(number)
        except StoreError as refusal:
            raise Problem(404, "not-found", _sentence(refusal, self._store)) from None
        except PolicyError as refusal:
            raise Problem(409, "conflict", _sentence(refusal, self._store)) from None

    async def _off_loop(self, work: Callable[[], _T]) -> _T:
        """File work on a thread; the store's refusals without its paths."""
        try:
            return await asyncio.to_thread(work)
        except StoreError as refusal:
            raise Problem(409, "conflict", _sentence(refusal, self._store)) from None
        except CalibrationError as refusal:
            raise invalid_parameter(_sentence(refusal, self._store)) from None


async def _options(request: Request, model: type[_M], *, required: bool = False) -> _M:
    """The request's small JSON object; an absent body means the defaults."""
    body = await request.body()
    if not body and not required:
        return model()
    if request.content_type != JSON:
        raise unsupported(request.content_type, (JSON,))
    return _parse(model, body)


def _parse(model: type[_M], body: bytes) -> _M:
    """A JSON document, strictly: a text is no number and a number is no date."""
    parse_json(body)  # its refusals say what is wrong with the JSON itself
    _refuse_repeated(body)
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise invalid_parameter(f"{where}: {first['msg'].removeprefix('Value error, ')}.") from None


def _refuse_repeated(body: bytes) -> None:
    """Two thresholds of one name: parsers would take the last, a reader the first, so nobody takes either."""

    def pairs(found: list[tuple[str, Any]]) -> None:
        if len(dict(found)) == len(found):
            return
        names = sorted(name for name, _ in found)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise malformed(f"The key {twice[:40]!r} stands twice in an object; give it once.")

    try:
        json.loads(body, object_pairs_hook=pairs)
    except RecursionError:
        raise malformed("The body is nested too deeply.") from None


def _number(request: Request) -> int:
    text = request.path_params["number"]
    if not (text.isascii() and text.isdigit() and len(text) <= 9) or int(text) == 0:
        raise invalid_parameter(f"A policy has a whole number from 1; {text[:20]!r} arrived.")
    return int(text)


def _sentence(refusal: CalibrationError, store: PolicyStore) -> str:
    text = str(refusal).strip().rstrip(".") + "."
    text = text.replace(f" in {store.directory}", "").replace(f"{store.directory}", "the policy store")
    return text[0].upper() + text[1:].replace("--force", '"force": true')
