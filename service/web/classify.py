"""`POST /v1/classify`: instances in, decisions out."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from calibration.policy import REASONS, Policy
from models.bundle import Bundle
from models.runtime import Scored
from service.engine import Engine
from service.gate import DecisionBatch, Gate, ItemIds, NoPolicyError
from service.problems import invalid_parameter
from service.web.inputs import Inputs, Reader
from service.web.router import Request, Response

MODES = ("full", "strict")


class Classifier:
    """Reads, scores, judges and renders a native request."""

    def __init__(self, bundle: Bundle, gate: Gate, engine: Engine, reader: Reader) -> None:
        self._model = f"{bundle.manifest.name}:{bundle.manifest.version}"
        self._classes = bundle.manifest.classes
        self._gate = gate
        self._engine = engine
        self._reader = reader

    async def __call__(self, request: Request) -> Response:
        if self._gate.view.policy is None:
            raise NoPolicyError
        strict = _mode(request) == "strict"
        return Response(await self.answer(await self._reader.read(request), request.request_id, strict=strict))

    async def answer(self, inputs: Inputs, request_id: str, *, strict: bool = False) -> bytes:
        """The rendered answer to a validated batch."""
        x, ids, returns = inputs
        run = await self._engine.score(x, probabilities="probabilities" in returns)
        batch = self._gate.judge(
            run.scored,
            x,
            view=self._gate.view,
            request_id=request_id,
            ids=ids or ItemIds(request_id, len(x))[:],
            seconds=run.seconds,
            batch_size=run.batch_size,
        )
        return self._render(batch, run.scored, strict=strict, shadow="shadow" in returns)

    def _render(self, batch: DecisionBatch, scored: Scored, *, strict: bool, shadow: bool) -> bytes:
        predictions = predictions_of(batch, self._classes)
        if scored.probabilities is not None:
            for item, row in zip(predictions, scored.probabilities.tolist(), strict=True):
                item["probabilities"] = row
        if shadow and batch.shadow is not None:
            _add_shadow(predictions, batch)
        if strict:
            _drop_labels(predictions)
        return orjson.dumps(
            {
                "request_id": batch.request_id,
                "model": self._model,
                "policy": batch.policy.number,
                "predictions": predictions,
            }
        )


def predictions_of(batch: DecisionBatch, classes: Sequence[str]) -> list[dict[str, Any]]:
    """One object an instance, as in `schemas.Prediction`; JSON turns what is not finite into null."""
    tau_id, tau_ood = batch.policy.tau_id, batch.policy.tau_ood
    items = [
        {
            "id": item,
            "decision": "accept" if code == 0 else "reject",
            "reason": REASONS[code],
            "label": label,
            "class": classes[label],
            "s_id": s_id,
            "s_ood": s_ood,
            "tau_id": tau_id,
            "tau_ood": tau_ood,
        }
        for item, code, label, s_id, s_ood in zip(
            batch.ids,
            batch.reason.tolist(),
            batch.label.tolist(),
            batch.s_id.tolist(),
            batch.s_ood.tolist(),
            strict=True,
        )
    ]
    if batch.policy.per_class is not None:
        for entry in items:
            entry["tau_id"], entry["tau_ood"] = batch.policy.thresholds(entry["label"])
    return items


def thresholds_json(policy: Policy) -> dict[str, float | None]:
    """Both thresholds, null for an open door."""
    return {
        "tau_id": policy.tau_id if math.isfinite(policy.tau_id) else None,
        "tau_ood": policy.tau_ood if math.isfinite(policy.tau_ood) else None,
    }


def _mode(request: Request) -> str:
    query: Mapping[str, str] = request.query_only("mode")
    mode = query.get("mode", "full")
    if mode not in MODES:
        raise invalid_parameter(f"mode={mode[:40]!r} is unknown; known are {' and '.join(MODES)}.")
    return mode


def _add_shadow(predictions: list[dict[str, Any]], batch: DecisionBatch) -> None:
    assert batch.shadow is not None  # the caller has checked
    assert batch.shadow_reason is not None  # set together with `shadow`
    for item, code in zip(predictions, batch.shadow_reason.tolist(), strict=True):
        item["shadow"] = {
            "policy": batch.shadow.number,
            "decision": "accept" if code == 0 else "reject",
            "reason": REASONS[code],
        }


def _drop_labels(predictions: list[dict[str, Any]]) -> None:
    for item in predictions:
        if item["decision"] == "reject":
            for key in ("label", "class", "probabilities"):
                item.pop(key, None)
