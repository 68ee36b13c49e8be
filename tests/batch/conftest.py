"""Small real bundles and data for batch jobs."""

import io
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from calibration.policy import Policy
from calibration.store import PolicyStore
from models.bundle import Bundle, GraphNames, Manifest, save_bundle
from models.inputs import ImageInput, TensorInput
from models.runtime import RuntimeOptions

CLASSES = ("ant", "bee", "cat")
DIM = 4


def gate_graph(spec: TensorInput | ImageInput, width: int, layers: int, seed: int = 0) -> onnx.ModelProto:
    """An MLP with the gate's outputs: s_id is the top probability, s_ood the log-sum-exp of the logits."""
    rng = np.random.default_rng(seed)
    kind = helper.np_dtype_to_tensor_dtype(spec.np_dtype)
    size = int(np.prod([int(s or 1) for s in spec.item_shape]))
    nodes, weights = [], []

    def node(op: str, *inputs: str, out: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def constant(name: str, value: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(value, name))
        return name

    h = node("Cast", "x", out="x32", to=TensorProto.FLOAT)
    h = node("Reshape", h, constant("flat", np.array([-1, size])), out="h0")
    sizes = [size, *[width] * layers, len(CLASSES)]
    for i, (a, b) in enumerate(pairwise(sizes)):
        w = constant(f"w{i}", rng.normal(0, a**-0.5, (a, b)).astype(np.float32))
        h = node("MatMul", h, w, out=f"m{i}")
        h = node("Relu", h, out=f"r{i}") if i < layers else h
    node("Softmax", h, out="probabilities", axis=1)
    node("ArgMax", h, out="label", axis=1, keepdims=0)
    axes = constant("axes", np.array([1]))
    top = node("ReduceMax", "probabilities", axes, out="top", keepdims=0)
    node("Cast", top, out="s_id", to=TensorProto.DOUBLE)
    lse = node("ReduceLogSumExp", h, axes, out="lse", keepdims=0)
    node("Cast", lse, out="s_ood", to=TensorProto.DOUBLE)
    zero = node("Sub", "s_ood", "s_ood", out="zero")
    node("Equal", zero, constant("nil", np.array(0.0)), out="finite")
    outputs = [("label", TensorProto.INT64), ("s_id", TensorProto.DOUBLE), ("s_ood", TensorProto.DOUBLE),
               ("finite", TensorProto.BOOL)]  # fmt: skip
    graph = helper.make_graph(
        nodes, "gate", [helper.make_tensor_value_info("x", kind, ["n", *spec.item_shape])],
        [*(helper.make_tensor_value_info(name, t, ["n"]) for name, t in outputs),
         helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(CLASSES)])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _make_bundle(path: Path, spec: TensorInput | ImageInput, *, width: int = 8, layers: int = 1) -> Bundle:
    manifest = Manifest(
        name="tiny",
        version="1",
        created_at="2025-01-01T00:00:00+00:00",
        input=spec,
        classes=CLASSES,
        scores={"s_id": {"id": "msp"}, "s_ood": {"id": "energy"}},
        graph=GraphNames(logits="m1", logits_kind="logits", features=None),
        runtime=RuntimeOptions(provider="cpu"),
        provenance={},
        files={},
    )
    return save_bundle(path, manifest, gate_graph(spec, width, layers))


def give_policy(bundle: Bundle, tau_id: float = 0.5, tau_ood: float = 1.8) -> Policy:
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    policy = store.add(Policy(tau_id=tau_id, tau_ood=tau_ood))
    assert policy.number is not None
    store.activate(policy.number)
    return policy


@pytest.fixture(scope="session")
def make_bundle() -> Callable[..., Bundle]:
    """Makes a tensor bundle without a policy: `make_bundle(path, shape=(4,))`."""
    return lambda path, shape, **options: _make_bundle(path, TensorInput(shape=shape), **options)


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Takes vectors of four numbers; policy 1 is active."""
    made = _make_bundle(tmp_path_factory.mktemp("bundles") / "tensor", TensorInput(shape=(DIM,)))
    give_policy(made)
    return made


@pytest.fixture(scope="session")
def image_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Takes grey images of 8 × 8; policy 1 is active."""
    spec = ImageInput(height=8, width=8, channels=1, scale=1.0)
    made = _make_bundle(tmp_path_factory.mktemp("bundles") / "image", spec)
    give_policy(made)
    return made


@pytest.fixture(scope="session")
def slow_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Takes vectors, and its time: about half a millisecond an item on one core."""
    made = _make_bundle(tmp_path_factory.mktemp("bundles") / "slow", TensorInput(shape=(DIM,)), width=1024, layers=14)
    give_policy(made)
    return made


@pytest.fixture
def vectors(tmp_path: Path) -> Callable[..., Path]:
    """Writes an .npz with x, y (−1 for OOD), group and a further column."""

    def write(n: int = 100, seed: int = 0, name: str = "data.npz") -> Path:
        rng = np.random.default_rng(seed)
        y = rng.integers(-1, len(CLASSES), n)
        group = np.where(y < 0, "far", "known")
        np.savez(tmp_path / name, x=rng.normal(0, 2, (n, DIM)).astype(np.float32), y=y, group=group, note=np.arange(n))
        return tmp_path / name

    return write


def _png(seed: int, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, size, np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def png() -> Callable[..., bytes]:
    """Makes the bytes of a random grey image: `png(seed)`."""
    return _png


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder with class folders, a stranger, and two files that are no images."""
    root = tmp_path / "photos"
    for i, name in enumerate(["ant", "bee", "cat", "zebra"]):
        (root / name).mkdir(parents=True)
        for j in range(5):
            (root / name / f"{j}.png").write_bytes(_png(10 * i + j))
    (root / "ant" / "broken.jpg").write_bytes(_png(0)[:40])
    (root / "bee" / "text.png").write_text("not an image")
    (root / "bee" / "readme.md").write_text("not to be listed")
    return root


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows of an output, whatever its kind; parts of a folder in order."""
    if path.is_dir():
        return [row for part in sorted(path.glob("part-*")) for row in _rows(part)]
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="session")
def rows() -> Callable[[Path], list[dict[str, Any]]]:
    """Reads an output back: `rows(path)`."""
    return _rows
