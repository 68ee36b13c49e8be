"""The Open Inference Protocol V2 over HTTP: health, metadata and inference, so that its clients work unchanged."""

from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.policy import REASONS
from models.bundle import Bundle
from models.runtime import Scored
from service.engine import Engine
from service.gate import DecisionBatch, Gate, ItemIds, NoPolicyError
from service.problems import Problem, malformed
from service.web.arrays import Spec
from service.web.ids import well_formed
from service.web.openapi import example_instance
from service.web.router import Request, Response, json_response
from service.web.v2_codec import Wanted, datatype_of, parse_infer, render_infer

BINARY = "application/octet-stream"
_REASONS = np.array([reason or "" for reason in REASONS], dtype=object)


class V2:
    """Answers the protocol for one bundle, which is one model with one version."""

    def __init__(self, bundle: Bundle, gate: Gate, engine: Engine, input_name: str, *, max_instances: int) -> None:
        self._manifest = bundle.manifest
        self._gate = gate
        self._engine = engine
        self._input_name = input_name
        self._limit = max_instances

    async def server(self, request: Request) -> Response:
        """Who answers and which extensions it knows."""
        extensions = ["binary_tensor_data"]
        return json_response({"name": "airlock", "version": version("airlock-gate"), "extensions": extensions})

    async def metadata(self, request: Request) -> Response:
        """Names, types and shapes of the model's tensors."""
        self._check_model(request)
        return json_response(self.describe())

    async def model_ready(self, request: Request) -> Response:
        """Whether the model answers inference requests."""
        self._check_model(request)
        if self._gate.view.policy is None:
            raise NoPolicyError
        return json_response({"name": self._manifest.name, "ready": True})

    async def infer(self, request: Request) -> Response:
        """Label, both scores and the decision of every instance."""
        self._check_model(request)
        if self._gate.view.policy is None:
            raise NoPolicyError
        json_size = _json_size(request.headers.get(b"inference-header-content-length"))
        body = await request.body()
        call, x = parse_infer(body, json_size, self._spec, self._input_name, self._limit)
        if call.id and b"x-request-id" not in request.headers and well_formed(call.id):
            request.request_id = call.id
        if call.timeout is not None and request.ticket is not None:
            request.ticket.seconds = min(request.ticket.seconds, call.timeout)
        want_probabilities = any(wanted.name == "probabilities" for wanted in call.outputs)
        run = await self._engine.score(x, probabilities=want_probabilities)
        batch = self._gate.judge(
            run.scored,
            x,
            view=self._gate.view,
            request_id=request.request_id,
            ids=ItemIds(request.request_id, len(x)),
            seconds=run.seconds,
            batch_size=run.batch_size,
        )
        return self._render(batch, run.scored, call.outputs, call.id)

    def describe(self) -> dict[str, Any]:
        """The model's metadata."""
        spec = self._spec
        shape = [-1, *(-1 if size is None else size for size in spec.item_shape)]
        outputs = {"label": "INT64", "s_id": "FP64", "s_ood": "FP64", "accept": "BOOL", "reason": "BYTES"}
        classes = len(self._manifest.classes)
        return {
            "name": self._manifest.name,
            "versions": [self._manifest.version],
            "platform": "airlock_onnxruntime",
            "inputs": [{"name": self._input_name, "datatype": datatype_of(spec.np_dtype), "shape": shape}],
            "outputs": [
                *({"name": name, "datatype": datatype, "shape": [-1]} for name, datatype in outputs.items()),
                {"name": "probabilities", "datatype": "FP32", "shape": [-1, classes]},
            ],
        }

    def example(self) -> dict[str, Any] | None:
        """A valid input tensor for the description, where it is short enough to be read."""
        instance = example_instance(self._spec)
        if instance is None:
            return None
        item = self._spec.example()
        datatype = datatype_of(self._spec.np_dtype)
        data = item.ravel().tolist()
        return {"name": self._input_name, "shape": list(item.shape), "datatype": datatype, "data": data}

    @property
    def _spec(self) -> Spec:
        return self._manifest.input

    def _check_model(self, request: Request) -> None:
        name, wanted = request.path_params["name"], request.path_params.get("version")
        if name != self._manifest.name or wanted not in (None, self._manifest.version):
            raise Problem(
                404,
                "not-found",
                f"There is no such model; this server has {self._manifest.name} version {self._manifest.version}.",
            )

    def _render(
        self, batch: DecisionBatch, scored: Scored, outputs: tuple[Wanted, ...], given_id: str | None
    ) -> Response:
        columns: dict[str, NDArray[Any]] = {
            "label": batch.label,
            "s_id": batch.s_id,
            "s_ood": batch.s_ood,
            "accept": batch.accept,
        }
        if scored.probabilities is not None:
            columns["probabilities"] = scored.probabilities
        if any(wanted.name == "reason" for wanted in outputs):
            columns["reason"] = _REASONS[batch.reason]
        header = {
            "model_name": self._manifest.name,
            "model_version": self._manifest.version,
            "id": given_id if given_id is not None else batch.request_id,
            "parameters": {"policy": batch.policy.number},
        }
        body, json_size = render_infer(header, columns, outputs)
        if json_size is None:
            return Response(body)
        return Response(body, 200, BINARY, ((b"inference-header-content-length", b"%d" % json_size),))


def _json_size(header: bytes | None) -> int | None:
    if header is None:
        return None
    if not header.isdigit() or len(header) > 12:
        raise malformed("The header Inference-Header-Content-Length is a number of bytes.")
    return int(header)
