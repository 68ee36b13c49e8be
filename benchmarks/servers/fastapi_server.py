"""The yardstick: a hand-written FastAPI + orjson server around the same graph, doing nothing but what must be done.

python benchmarks/servers/fastapi_server.py MODEL.onnx TAU_ID TAU_OOD ITEM_SHAPE PORT
"""

import json
import sys
import uuid

import numpy as np
import onnxruntime as ort
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

MODEL, TAU_ID, TAU_OOD, SHAPE, PORT = sys.argv[1:6]
tau_id, tau_ood, shape = float(TAU_ID), float(TAU_OOD), tuple(json.loads(SHAPE))

options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
outputs = ["label", "s_id", "s_ood", "finite"]
REASONS = (None, "low_id", "low_ood", "low_both", "not_finite")
app = FastAPI()


def judge(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One run and two comparisons."""
    label, s_id, s_ood, finite = session.run(outputs, {name: x})
    reason = (s_id < tau_id) + 2 * (s_ood < tau_ood)
    reason[~finite] = 4
    return label, s_id, s_ood, reason


@app.post("/v1/classify")
async def classify(request: Request) -> Response:
    """JSON in, JSON out, with the product's response."""
    document = orjson.loads(await request.body())
    label, s_id, s_ood, reason = judge(np.asarray(document["instances"], np.float32))
    request_id = uuid.uuid4().hex
    predictions = [
        {
            "id": f"{request_id}-{i}",
            "decision": "reject" if r else "accept",
            "reason": REASONS[r],
            "label": k,
            "class": str(k),
            "s_id": a,
            "s_ood": b,
            "tau_id": tau_id,
            "tau_ood": tau_ood,
        }
        for i, (k, a, b, r) in enumerate(
            zip(label.tolist(), s_id.tolist(), s_ood.tolist(), reason.tolist(), strict=True)
        )
    ]
    body = {"request_id": request_id, "model": "bench:1", "policy": 1, "predictions": predictions}
    return Response(orjson.dumps(body), media_type="application/json")


@app.post("/binary")
async def binary(request: Request) -> Response:
    """Raw float32 in, raw columns out."""
    x = np.frombuffer(await request.body(), np.float32).reshape(-1, *shape)
    label, s_id, s_ood, reason = judge(x)
    blob = b"".join((label.tobytes(), s_id.tobytes(), s_ood.tobytes(), (reason == 0).tobytes()))
    return Response(blob, media_type="application/octet-stream")


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(PORT), log_level="warning", access_log=False)
