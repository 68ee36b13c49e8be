"""HTTP: metrics, status, feedback, review, and lowering an alarm by hand."""

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from calibration.errors import CalibrationError
from calibration.policy import Policy
from service.gate import ServiceContext
from service.ledger.feedback import (
    AmbiguousDecision,
    ConflictingLabel,
    Recorded,
    Target,
    UnknownDecision,
    give_label,
)
from service.ledger.review import BadCursor, review_page
from service.monitoring import exposition, schemas
from service.monitoring.alarms import KINDS
from service.monitoring.board import read_board
from service.monitoring.leader import STATUS
from service.monitoring.recorder import TICK_SECONDS, Recorder
from service.problems import Problem, invalid_parameter
from service.web.router import JSON, Answer, Operation, Query, Request, Response, Route, json_response

_MOST_ITEMS = 500
_SPARE_SECONDS = 0.4  # for the transaction itself, in the stated window of loss


class MonitoringRoutes:
    """The handlers of one worker."""

    def __init__(self, context: ServiceContext, recorder: Recorder) -> None:
        self._context, self._recorder = context, recorder
        self._settings = context.settings.monitoring
        self._classes = list(context.bundle.manifest.classes)
        self._desk = recorder.desk

    async def metrics(self, request: Request) -> Response:
        """Everything for Prometheus."""
        body = await asyncio.to_thread(self._exposition)
        return Response(body, content_type=exposition.CONTENT_TYPE)

    def _exposition(self) -> bytes:
        station = self._recorder.station
        view, bundle = self._context.gate.view, self._context.bundle.hash
        status = read_board(station.directory / STATUS)
        return exposition.exposition(station.layout, station.counts().values(), status, view, bundle)

    async def status(self, request: Request) -> Response:
        """Rates, evidence, alarms, policy and ledger in one document."""
        request.query_only()
        return json_response(await asyncio.to_thread(self._status))

    def _status(self) -> dict[str, Any]:
        station, view = self._recorder.station, self._context.gate.view
        found = read_board(station.directory / STATUS) or {}
        current = view.policy is not None and found.get("policy") == view.policy.number
        monitors = found.get("monitors") if current else None
        alarms = (monitors or {}).pop("alarms", {})
        manifest = self._context.bundle.manifest
        if monitors is not None:
            monitors["started"] = _iso(monitors["started"])
        return {
            "bundle": {"name": manifest.name, "version": manifest.version, "hash": self._context.bundle.hash},
            "policy": None if view.policy is None else self._policy(view.policy),
            "shadow": None if view.shadow is None else view.shadow.number,
            "alarms": [_alarm(alarm) for alarm in alarms.values() if alarm["raised"]],
            "past_alarms": [_alarm(alarm) for alarm in alarms.values() if alarm["cleared"] and not alarm["raised"]],
            "evaluated": _iso(found.get("at")),
            "alpha": self._settings.alpha,
            "monitors": monitors,
            "ledger": self._ledger_status(),
        }

    def _policy(self, policy: Policy) -> dict[str, Any]:
        pointer = None
        with suppress(CalibrationError):  # a damaged store is the gate's to report; the policy in memory still judges
            pointer = self._context.store.pointer()
        switches = [switch for switch in (pointer.history if pointer else ()) if switch.number == policy.number]
        activated = switches[-1].at if switches else None
        now = datetime.now(UTC)
        return {
            "number": policy.number,
            "status": policy.status,
            "method": policy.method,
            "created": policy.created_at.isoformat(),
            "age_seconds": round((now - policy.created_at).total_seconds()),
            "activated": None if activated is None else activated.isoformat(),
            "active_seconds": None if activated is None else round((now - activated).total_seconds()),
        }

    def _ledger_status(self) -> dict[str, Any]:
        settings = self._settings
        if not settings.ledger:
            return {"enabled": False}
        station = self._recorder.station
        slots = list(station.counts().values())
        fields = station.layout.fields

        def total(name: str) -> int:
            return int(sum(values[fields[name]][0] for values in slots))

        lag = max((float(values[fields["ledger_lag"]][0]) for values in slots), default=0.0)
        return {
            "enabled": True,
            "queue": total("ledger_queue"),
            "lag_seconds": round(lag, 3),
            "written": total("ledger_written"),
            "dropped": total("ledger_dropped"),
            "errors": total("ledger_errors"),
            "loss_window_seconds": round(settings.ledger_flush_seconds + TICK_SECONDS + _SPARE_SECONDS, 3),
            "audit_share": settings.audit_share,
            "audit_share_rejected": settings.audit_share_rejected,
        }

    async def feedback(self, request: Request) -> Response:
        """Record a label."""
        request.query_only()
        try:
            feedback = schemas.Feedback.model_validate(await request.json())
        except ValidationError as fault:
            raise invalid_parameter(_first_fault(fault)) from None
        label = self._label(feedback)
        target = Target(feedback.id, feedback.request_id, feedback.item)
        recorded = await self._give(target, label, feedback.replace)
        return json_response(
            {
                "status": recorded.outcome,
                "request_id": recorded.request_id,
                "item": recorded.item,
                "prediction": recorded.prediction,
                "decision": "accept" if recorded.accepted else "reject",
                "wrong": recorded.wrong,
                "audit": recorded.audit,
            }
        )

    def _label(self, feedback: schemas.Feedback) -> int | None:
        label = feedback.label
        if isinstance(label, str):
            if label not in self._classes:
                raise invalid_parameter(
                    f"{label[:60]!r} is no class of this bundle; use one of its {len(self._classes)} class names, "
                    "or is_ood: true"
                )
            return self._classes.index(label)
        if label is not None and not 0 <= label < len(self._classes):
            raise invalid_parameter(
                f"the class {label} arrived; this bundle has the classes 0 to {len(self._classes) - 1}, "
                "or use is_ood: true"
            )
        return label

    async def _give(self, target: Target, label: int | None, replace: bool) -> Recorded:
        """Try until the decision has had the time to reach the ledger, from whichever worker made it."""
        deadline = time.monotonic() + 2 * (self._settings.ledger_flush_seconds + TICK_SECONDS) + 0.5
        while True:
            try:
                return await self._desk.ask(lambda db: give_label(db, target, label=label, replace=replace))
            except UnknownDecision as refusal:
                if time.monotonic() > deadline:
                    raise Problem(404, "not-found", _sentence(refusal)) from None
            except AmbiguousDecision as refusal:
                raise invalid_parameter(_sentence(refusal)) from None
            except ConflictingLabel as refusal:
                raise Problem(409, "conflict", _sentence(refusal)) from None
            await asyncio.sleep(0.1)

    async def review(self, request: Request) -> Response:
        """What to label next."""
        query = request.query_only("limit", "cursor")
        limit = _limit(query.get("limit"))
        bundle = self._context.bundle.hash
        try:
            page = await self._desk.ask(lambda db: review_page(db, limit, query.get("cursor"), bundle))
        except BadCursor as refusal:
            raise invalid_parameter(_sentence(refusal)) from None
        return json_response({"items": [self._item(item) for item in page.items], "cursor": page.cursor})

    def _item(self, item: dict[str, Any]) -> dict[str, Any]:
        label = item["label"]
        named = self._classes[label] if 0 <= label < len(self._classes) else None
        return item | {"time": _iso(item["time"]), "class": named}

    async def clear(self, request: Request) -> Response:
        """Lower an alarm; the leader does it at its next look."""
        request.query_only()
        kind = request.path_params["kind"]
        if kind not in KINDS:
            raise Problem(404, "not-found", f"there is no alarm {kind[:60]!r}; there are {', '.join(KINDS)}")
        (self._recorder.station.directory / f"clear-{kind}").touch()
        return json_response({"kind": kind, "status": "clearing"}, 202)


def monitoring_routes(context: ServiceContext, recorder: Recorder) -> list[Route]:
    """The routes and what OpenAPI says of them."""
    handlers = MonitoringRoutes(context, recorder)
    text = Answer("Prometheus text format", {"type": "string"}, "text/plain")
    metrics = Operation("Metrics for Prometheus", "monitoring", answers={200: text})
    status = Operation(
        "Rates, evidence, alarms, policy and ledger",
        "monitoring",
        "Intervals are confidence sequences: they hold at all times at once, with probability 1 - alpha.",
        answers={200: Answer("The status", schemas.Status)},
        problems=(422,),
    )
    feedback = Operation(
        "Tell the truth about a decision",
        "monitoring",
        "On disk before it is answered. The same label again changes nothing; another one is refused with 409 "
        "unless `replace` is true.",
        body={JSON: schemas.Feedback},
        answers={200: Answer("What became of it", schemas.FeedbackResult)},
        problems=(404, 409, 429, 503),
    )
    review = Operation(
        "What to label next",
        "monitoring",
        "First the items that the audit drew, then the rejects that came closest to being accepted.",
        query=(
            Query("limit", {"type": "integer", "minimum": 1, "maximum": _MOST_ITEMS, "default": 50}, "Items a page."),
            Query("cursor", {"type": "string"}, "Where the last page ended."),
        ),
        answers={200: Answer("Items without a label", schemas.Review)},
        problems=(404, 422, 429, 503),
    )
    clear = Operation(
        "Lower an alarm and start its monitor over",
        "monitoring",
        path={"kind": {"enum": list(KINDS)}},
        answers={202: Answer("Will be done within a second or so", schemas.Cleared)},
        problems=(404,),
    )
    return [
        Route("GET", "/metrics", handlers.metrics, "read", metrics),
        Route("GET", "/v1/status", handlers.status, "read", status),
        Route("POST", "/v1/feedback", handlers.feedback, "admin", feedback),
        Route("GET", "/v1/review", handlers.review, "read", review),
        Route("POST", "/v1/alarms/{kind}/clear", handlers.clear, "admin", clear),
    ]


def _limit(given: str | None) -> int:
    if given is None:
        return 50
    if not (given.isascii() and given.isdigit()) or len(given) > 9 or not 1 <= int(given) <= _MOST_ITEMS:
        raise invalid_parameter(f"limit is a whole number from 1 to {_MOST_ITEMS}; {given[:20]!r} arrived")
    return int(given)


def _alarm(alarm: dict[str, Any]) -> dict[str, Any]:
    times = {name: _iso(alarm[name]) for name in ("since", "confirmed", "cleared") if alarm[name] is not None}
    return {"kind": alarm["kind"], **times, "times": alarm["times"], "evidence": alarm["evidence"]}


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _sentence(refusal: Exception) -> str:
    text = str(refusal)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _first_fault(fault: ValidationError) -> str:
    first = fault.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    message = str(first["msg"]).removeprefix("Value error, ")
    said = f"In the field {where}: {message}" if where else f"{message[:1].upper()}{message[1:]}"
    return f"{said}."
