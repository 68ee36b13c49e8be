"""Bundles whose scores can be read off their inputs: s_id is the first number of an item, s_ood the second."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from calibration.policy import Policy
from calibration.store import PolicyStore
from models.bundle import Bundle, GraphNames, Manifest, save_bundle, utc_now
from models.inputs import ImageInput, TensorInput
from models.runtime import RuntimeOptions

CLASSES = ("cat", "dog", "fish")
WIDTH = 5


def _fused(spec: TensorInput | ImageInput) -> onnx.ModelProto:
    """s_id is the first number of an item, s_ood the second, the label the largest of the next three.

    Integers go through a table of ten, as tokens do: nine mean themselves, the last one means NaN.
    """
    nodes, inits = [], []

    def constant(name: str, value: list[int]) -> str:
        inits.append(helper.make_tensor(name, TensorProto.INT64, [len(value)], value))
        return name

    def columns(name: str, start: int, stop: int, to: str) -> None:
        bounds = [constant(f"{name}_{key}", [value]) for key, value in (("a", start), ("b", stop), ("axis", 1))]
        nodes.append(helper.make_node("Slice", ["flat", *bounds], [to]))

    if spec.np_dtype == np.int64:
        inits.append(numpy_helper.from_array(np.array([*range(9), np.nan], np.float32), "table"))
        nodes.append(helper.make_node("Gather", ["table", "x"], ["float"]))
    else:
        nodes.append(helper.make_node("Cast", ["x"], ["float"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Flatten", ["float"], ["short"], axis=1))
    nodes.append(
        helper.make_node("Pad", ["short", constant("pads", [0, 0, 0, WIDTH])], ["flat"])
    )  # open sizes start at 1
    for role, at in (("s_id", 0), ("s_ood", 1)):
        columns(role, at, at + 1, f"{role}_column")
        nodes.append(helper.make_node("Cast", [f"{role}_column"], [f"{role}_double"], to=TensorProto.DOUBLE))
        nodes.append(helper.make_node("Squeeze", [f"{role}_double", constant(f"{role}_one", [1])], [role]))
    columns("logits", 2, 5, "logits")
    nodes.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1, keepdims=0))
    nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1))
    nodes.append(helper.make_node("Sub", ["s_id", "s_id"], ["zero"]))
    nodes.append(helper.make_node("IsNaN", ["zero"], ["bad"]))
    nodes.append(helper.make_node("Not", ["bad"], ["finite"]))
    kinds = {"uint8": TensorProto.UINT8, "float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    shape = ["n", *spec.item_shape]
    outputs = [
        helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
        helper.make_tensor_value_info("s_id", TensorProto.DOUBLE, ["n"]),
        helper.make_tensor_value_info("s_ood", TensorProto.DOUBLE, ["n"]),
        helper.make_tensor_value_info("finite", TensorProto.BOOL, ["n"]),
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", len(CLASSES)]),
    ]
    graph = helper.make_graph(
        nodes, "echo", [helper.make_tensor_value_info("x", kinds[spec.np_dtype.name], shape)], outputs, inits
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def save_echo_bundle(path: Path, spec: TensorInput | ImageInput, name: str = "echo") -> Bundle:
    manifest = Manifest(
        name=name,
        version="1",
        created_at=utc_now(),
        input=spec,
        classes=CLASSES,
        scores={"s_id": {"id": "first"}, "s_ood": {"id": "second"}},
        graph=GraphNames(logits="logits", logits_kind="logits", features=None),
        runtime=RuntimeOptions(provider="cpu", threads=1),
        provenance={},
        files={},
    )
    return save_bundle(path, manifest, _fused(spec))


def activate(bundle: Bundle, tau_id: float = 0.5, tau_ood: float = 0.5) -> int:
    """A new active policy; its number."""
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    number = store.add(Policy(tau_id=tau_id, tau_ood=tau_ood)).number
    assert number is not None
    store.activate(number)
    return number


def item(s_id: float, s_ood: float, label: int = 0) -> list[float]:
    """An instance of the tensor bundle with these scores and this label."""
    return [s_id, s_ood, *(1.0 if k == label else 0.0 for k in range(len(CLASSES)))]
