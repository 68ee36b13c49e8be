"""Classifier + two fitted scores → one graph: input → label, s_id, s_ood, finite, probabilities.

Nodes are appended to the classifier's own graph. Thresholds stay outside, so that a policy can be swapped while
serving; `bake` puts them inside for runtimes that have no gate of ours around them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from models.classifier import Classifier
from models.errors import ClassifierError
from models.graph import prune, rename_values, value_types
from models.inputs import ImageInput
from models.scores import FittedScore, OnnxNamespace
from models.scores.onnx_namespace import Value

GATE_OUTPUTS = {
    "label": TensorProto.INT64,
    "s_id": TensorProto.DOUBLE,
    "s_ood": TensorProto.DOUBLE,
    "finite": TensorProto.BOOL,
}
PROBABILITIES = "probabilities"
PIXELS = "pixels"
_PREFIX = "airlock"
_SMALL = 4096


@dataclass(frozen=True)
class Fused:
    """The fused graph, and where the classifier's own signals are found in it."""

    model: onnx.ModelProto
    logits: str
    features: str | None


def fuse(classifier: Classifier, s_id: FittedScore, s_ood: FittedScore) -> Fused:
    """One graph from the classifier's input to the gate's outputs."""
    model = onnx.ModelProto()
    model.CopyFrom(classifier.model)
    graph = model.graph
    del graph.output[:]
    taken = rename_values(graph, {name: f"model_{name}" for name in (*GATE_OUTPUTS, PROBABILITIES)})
    source = taken.get(classifier.input_name, classifier.input_name)
    logits = taken.get(classifier.logits, classifier.logits)
    features = classifier.features and taken.get(classifier.features, classifier.features)

    ns = OnnxNamespace(model, _PREFIX)
    scores = {"s_id": s_id.emit(ns, logits, features), "s_ood": s_ood.emit(ns, logits, features)}
    signals = [logits, *([features] if features and (s_id.uses_features or s_ood.uses_features) else [])]
    finite = _finite(ns, model, classifier, source, signals, scores)
    softmax = ns.node("Softmax", ns.value(logits), axis=1)
    if value_types(model).get(logits) != TensorProto.FLOAT:
        softmax = ns.single(softmax)
    label = ns.argmax(ns.float64(ns.value(logits)))  # on the cast that the scores share, where msp needs it too
    values = {"label": label.name, **scores, "finite": finite, PROBABILITIES: softmax.name}
    _name_outputs(graph, values, classifier.n_classes)
    prune(graph)
    model.producer_name = "airlock"
    return Fused(model, logits, features)


def accept_pixels(classifier: Classifier, image: ImageInput) -> Classifier:
    """The classifier behind uint8 pixels [B,H,W,C]: `(pixel · scale − mean) / std` and the layout become nodes."""
    layout = (image.channels, image.height, image.width) if image.layout == "NCHW" else image.item_shape
    shape, dtype = classifier.input_shape, np.dtype(classifier.input_dtype)
    fits = len(shape) == 3 and all(want in (None, got) for want, got in zip(shape, layout, strict=True))
    if not fits or dtype.kind != "f":
        raise ClassifierError(
            f"The image specification gives items of shape {list(layout)} ({image.layout}), but the model takes "
            f"{dtype} items of shape {list(shape)}; change height, width, channels or layout."
        )
    model = onnx.ModelProto()
    model.CopyFrom(classifier.model)
    graph = model.graph
    rename_values(graph, {PIXELS: f"model_{PIXELS}"})
    body = list(graph.node)
    del graph.node[:]
    ns = OnnxNamespace(model, f"{_PREFIX}_pixels")
    std, mean = (np.broadcast_to(np.asarray(v, np.float64), image.channels) for v in (image.std, image.mean))
    value = ns.node("Cast", ns.value(PIXELS), to=helper.np_dtype_to_tensor_dtype(dtype))
    value = value * (image.scale / std).astype(dtype) + (-mean / std).astype(dtype)
    if image.layout == "NCHW":
        value = ns.node("Transpose", value, perm=(0, 3, 1, 2))
    graph.node[-1].output[0] = classifier.input_name
    graph.node.extend(body)
    batch = _batch_axis(graph)
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(PIXELS, TensorProto.UINT8, [batch, *image.item_shape]))
    return replace(classifier, model=model, input_name=PIXELS, input_dtype=image.np_dtype, input_shape=image.item_shape)


def bake(model: onnx.ModelProto, tau_id: float | Sequence[float], tau_ood: float | Sequence[float]) -> onnx.ModelProto:
    """A copy of the fused graph with the thresholds inside and one more output, `accept`.

    A sequence holds one threshold a class, chosen by the predicted label.
    """
    baked = onnx.ModelProto()
    baked.CopyFrom(model)
    ns = OnnxNamespace(baked, f"{_PREFIX}_baked")
    passed = ns.value("finite")
    for role, tau in (("s_id", tau_id), ("s_ood", tau_ood)):
        threshold = ns.constant(np.asarray(tau, np.float64))
        if np.ndim(tau):
            threshold = ns.take(threshold, ns.value("label"))
        passed = ns.node("And", passed, ns.greater_equal(ns.value(role), threshold))
    rename_values(baked.graph, {passed.name: "accept"})
    batch = _batch_axis(baked.graph)
    baked.graph.output.append(helper.make_tensor_value_info("accept", TensorProto.BOOL, [batch]))
    return baked


def _finite(
    ns: OnnxNamespace,
    model: onnx.ModelProto,
    classifier: Classifier,
    source: str,
    signals: Sequence[str],
    scores: dict[str, str],
) -> str:
    """Bool [B], false where the input, the logits, the features a score reads or a score itself is NaN or infinite.

    ReLU and ReduceMax may swallow a NaN, so each tensor is looked at on its own: 0·NaN and 0·∞ are NaN, which makes
    a product with a zero vector a one-node test of a whole row. The scores join by their difference, which is finite
    exactly when both are.
    """
    types = value_types(model)
    widths = dict(zip(signals, _widths(classifier), strict=False))
    checked = [_Checked(ns.value(name), types.get(name, TensorProto.FLOAT), widths[name]) for name in signals]
    if np.issubdtype(classifier.input_dtype, np.floating):
        shape = classifier.input_shape
        width = None if None in shape else int(np.prod(np.asarray(shape, np.int64)))
        value = ns.value(source) if len(shape) == 1 else ns.node("Flatten", ns.value(source), axis=1)
        checked.append(_Checked(value, helper.np_dtype_to_tensor_dtype(np.dtype(classifier.input_dtype)), width))
    rows = [_zero_rows(ns, tensor) for tensor in _joined(ns, checked)]
    total = rows[0]
    for row in rows[1:]:
        total = total + row
    s_id, s_ood = ns.value(scores["s_id"]), ns.value(scores["s_ood"])
    gap = s_id if s_id.name == s_ood.name else s_id - s_ood
    name: str = ns.equal(ns.double(total) * gap, 0.0).name
    return name


class _Checked(NamedTuple):
    """A [B, width] value to be looked at; the width is None where the model leaves it open."""

    value: Value
    kind: int
    width: int | None


def _widths(classifier: Classifier) -> tuple[int, int | None]:
    return classifier.n_classes, None if classifier.head is None else classifier.head.weight.shape[1]


def _joined(ns: OnnxNamespace, tensors: list[_Checked]) -> list[_Checked]:
    """Small float32 tensors side by side: at batch 1 a node costs more than copying a few hundred numbers."""
    small = [t for t in tensors if t.kind == TensorProto.FLOAT and t.width is not None and t.width <= _SMALL]
    if len(small) < 2:
        return tensors
    joined = ns.node("Concat", *(t.value for t in small), axis=1)
    rest = [t for t in tensors if t not in small]
    return [_Checked(joined, TensorProto.FLOAT, sum(t.width or 0 for t in small)), *rest]


def _zero_rows(ns: OnnxNamespace, tensor: _Checked) -> Value:
    """float32 [B]: 0 where the row is finite, NaN elsewhere."""
    value, kind, width = tensor
    if kind == TensorProto.FLOAT16:
        value, kind = ns.single(value), TensorProto.FLOAT
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if width is None:
        zeroed = ns.sum(value * ns.constant(np.zeros((), dtype)))
    else:
        zeroed = value @ ns.constant(np.zeros(width, dtype))
    return zeroed if kind == TensorProto.FLOAT else ns.single(zeroed)


def _name_outputs(graph: onnx.GraphProto, values: dict[str, str], n_classes: int) -> None:
    """Declare the outputs under their public names; one value in two roles is copied."""
    batch = _batch_axis(graph)
    roles: dict[str, str] = {}
    for role, value in values.items():
        if value in roles:
            graph.node.append(helper.make_node("Identity", [value], [role]))
        else:
            roles[value] = role
    rename_values(graph, roles)
    for name, kind in GATE_OUTPUTS.items():
        graph.output.append(helper.make_tensor_value_info(name, kind, [batch]))
    graph.output.append(helper.make_tensor_value_info(PROBABILITIES, TensorProto.FLOAT, [batch, n_classes]))


def _batch_axis(graph: onnx.GraphProto) -> int | str:
    """The batch axis of the graph's input: its size where it is fixed, else its symbol."""
    dims = graph.input[0].type.tensor_type.shape.dim
    return (dims[0].dim_value or dims[0].dim_param or "batch") if dims else "batch"
