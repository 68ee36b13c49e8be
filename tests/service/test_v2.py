"""The Open Inference Protocol V2: its own client, both encodings, and what it refuses."""

from typing import Any

import numpy as np
import orjson
import pytest
import tritonclient.http as triton
from support.echo import item
from support.local import Local, problem
from support.server import Server
from tritonclient.utils import InferenceServerException

INFER = "/v2/models/echo/infer"
X = np.array([item(1, 1, 2), item(0, 1, 1), item(1, 0)], np.float32)


@pytest.fixture(scope="module")
def client(server: Server) -> Any:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


def tensor(x: np.ndarray, binary: bool, datatype: str = "FP32", name: str = "x") -> Any:
    tensor = triton.InferInput(name, list(x.shape), datatype)
    tensor.set_data_from_numpy(x, binary_data=binary)
    return tensor


def test_a_real_client_sees_a_live_ready_described_server(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("other")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    metadata = client.get_model_metadata("echo", "1")
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 5]}]
    assert {o["name"]: o["datatype"] for o in metadata["outputs"]}.items() >= {
        "label": "INT64",
        "s_id": "FP64",
        "s_ood": "FP64",
        "accept": "BOOL",
    }.items()


@pytest.mark.parametrize("sent_binary", [True, False])
@pytest.mark.parametrize("answered_binary", [True, False])
def test_a_real_client_gets_all_outputs(client: Any, sent_binary: bool, answered_binary: bool) -> None:
    names = ("label", "s_id", "s_ood", "accept", "reason", "probabilities")
    wanted = [triton.InferRequestedOutput(name, binary_data=answered_binary) for name in names]
    result = client.infer("echo", [tensor(X, sent_binary)], outputs=wanted, request_id="abc")
    assert result.get_response()["id"] == "abc"
    assert result.get_response()["parameters"] == {"policy": 1}
    assert result.as_numpy("label").tolist() == [2, 1, 0]
    assert result.as_numpy("s_id").dtype == np.float64
    assert result.as_numpy("s_id").tolist() == [1, 0, 1]
    assert result.as_numpy("s_ood").tolist() == [1, 1, 0]
    assert result.as_numpy("accept").tolist() == [True, False, False]
    reasons = [r.decode() if isinstance(r, bytes) else r for r in result.as_numpy("reason")]
    assert reasons == ["", "low_id", "low_ood"]
    np.testing.assert_allclose(result.as_numpy("probabilities").sum(axis=1), 1, rtol=1e-6)


def test_the_default_outputs_of_a_real_client(client: Any) -> None:
    result = client.infer("echo", [tensor(X, True)], model_version="1")
    assert [o["name"] for o in result.get_response()["outputs"]] == ["label", "s_id", "s_ood", "accept"]
    assert result.as_numpy("accept").tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("x", "datatype", "name", "words"),
    [
        (X[:, :4].copy(), "FP32", "x", "[4]"),
        (X.astype(np.float64) * 1e300, "FP64", "x", "finite"),
        (X, "FP32", "y", "'x'"),
    ],
)
def test_a_real_client_reads_our_refusals(client: Any, x: np.ndarray, datatype: str, name: str, words: str) -> None:
    with pytest.raises(InferenceServerException, match="422") as refusal:
        client.infer("echo", [tensor(x, True, datatype, name)])
    assert words in refusal.value.message()


def test_a_real_client_is_told_of_an_unknown_model(client: Any) -> None:
    with pytest.raises(InferenceServerException, match="echo version 1"):
        client.infer("other", [tensor(X, True)])
    with pytest.raises(InferenceServerException, match="404"):
        client.get_model_metadata("echo", "2")


def test_both_protocols_decide_alike(local: Local) -> None:
    native = local.classify(X.tolist()).json()["predictions"]
    answer = infer(local, {"name": "x", "shape": [3, 5], "datatype": "FP32", "data": X.ravel().tolist()})
    outputs = {o["name"]: o["data"] for o in answer.json()["outputs"]}
    for key in ("label", "s_id", "s_ood"):
        assert outputs[key] == [p[key] for p in native]
    assert outputs["accept"] == [p["decision"] == "accept" for p in native]


def infer(local: Local, tensor: Any, headers: dict[str, str] | None = None, tail: bytes = b"", **more: Any) -> Any:
    body = orjson.dumps({"inputs": [tensor], **more})
    if tail:
        headers = {"inference-header-content-length": str(len(body)), **(headers or {})}
    return local.request("POST", INFER, content=body + tail, headers=headers)


def test_nested_data_and_other_numeric_types_are_taken(local: Local) -> None:
    whole = X.astype(int)
    for datatype in ("INT64", "UINT8", "FP64", "FP16"):
        answer = infer(local, {"name": "x", "shape": [3, 5], "datatype": datatype, "data": whole.tolist()})
        assert answer.status_code == 200, answer.text
        assert answer.json()["outputs"][0]["data"] == [2, 1, 0]


def test_the_id_becomes_the_request_id_when_well_formed(local: Local) -> None:
    good = {"name": "x", "shape": [1, 5], "datatype": "FP32", "data": X[0].tolist()}
    assert infer(local, good, id="job-1").headers["x-request-id"] == "job-1"
    odd = infer(local, good, id="job 1\n")
    assert odd.json()["id"] == "job 1\n"
    assert len(odd.headers["x-request-id"]) == 32
    assert infer(local, good, {"x-request-id": "header"}, id="job-1").headers["x-request-id"] == "header"


GOOD: dict[str, Any] = {"name": "x", "shape": [1, 5], "datatype": "FP32", "data": [1, 1, 1, 0, 0]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": [1, 4]}, "4 values"),
        ({"shape": [5]}, "axes"),
        ({"shape": [0, 5], "data": []}, "at least one"),
        ({"shape": [-1, 5]}, "shape"),
        ({"shape": "x"}, "shape"),
        ({"shape": [True, 5]}, "shape"),
        ({"shape": [2**39, 2**39]}, "values"),
        ({"shape": []}, "1 values"),
        ({"datatype": "BYTES"}, "BYTES"),
        ({"datatype": 3}, "'3'"),
        ({"datatype": "INT8", "data": [1.5, 1, 1, 0, 0]}, "INT8"),
        ({"datatype": "UINT8", "data": [256, 1, 1, 0, 0]}, "255"),
        ({"data": ["1", 1, 1, 0, 0]}, "FP32"),
        ({"data": [[1, 2], [1]]}, "rectangular"),
        ({"data": None}, "data"),
        ({"data": [1e39, 1, 1, 0, 0]}, "finite"),
        ({"name": "y"}, "'x'"),
        ({"extra": 1}, "'extra'"),
        ({"parameters": 1}, "parameters"),
        ({"parameters": {"binary_data_size": 20}}, "both"),
    ],
)
def test_a_misfit_tensor(local: Local, change: dict[str, Any], words: str) -> None:
    refusal = problem(infer(local, {**GOOD, **change}), 422, "invalid-input")
    assert words in refusal["detail"]
    assert refusal["error"] == refusal["detail"]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"inputs": []},
        {"inputs": [GOOD, GOOD]},
        {"inputs": [1]},
        {"inputs": [GOOD], "outputs": [{"name": "nope"}]},
        {"inputs": [GOOD], "outputs": [{"name": "label"}, {"name": "label"}]},
        {"inputs": [GOOD], "outputs": 1},
        {"inputs": [GOOD], "id": 3},
        {"inputs": [GOOD], "parameters": {"timeout": "soon"}},
        {"inputs": [GOOD], "odd": 1},
    ],
)
def test_a_misfit_request(local: Local, document: Any) -> None:
    problem(local.request("POST", INFER, content=orjson.dumps(document)), 422, "invalid-input")


BINARY: dict[str, Any] = {"name": "x", "shape": [1, 5], "datatype": "FP32"}


@pytest.mark.parametrize(
    ("size", "tail", "headers"),
    [
        (20, b"\0" * 19, {}),
        (21, b"\0" * 21, {}),
        ("20", b"\0" * 20, {}),
        (20, b"\0" * 20, {"inference-header-content-length": "9999"}),
        (20, b"\0" * 20, {"inference-header-content-length": "3"}),
        (20, b"\0" * 20, {"inference-header-content-length": "x"}),
    ],
)
def test_a_malformed_binary_request(local: Local, size: Any, tail: bytes, headers: dict[str, str]) -> None:
    problem(infer(local, {**BINARY, "parameters": {"binary_data_size": size}}, headers, tail), 400, "malformed")


def test_binary_data_must_be_announced(local: Local) -> None:
    problem(infer(local, BINARY, {}, b"\0" * 20), 422, "invalid-input")
    problem(infer(local, GOOD, {}, b"\0" * 20), 400, "malformed")


def test_the_request_timeout_of_the_protocol_is_honoured(local: Local) -> None:
    assert infer(local, GOOD, parameters={"timeout": 5_000_000}).status_code == 200
