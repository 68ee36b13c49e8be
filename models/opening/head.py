"""Find the last linear layer by walking up from the logits, and prove it with numbers.

The walk passes only what keeps a linear map linear: scaling and shifting by constants (a temperature, a bias, a
batch normalisation), changes of shape, and averaging or selecting over positions. The last commute with a layer that
acts on channels, so the same averaging of the layer's input gives features for which `h·Wᵀ + b` holds.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto

from models.graph import GraphIndex, append_constant, append_node, attributes, before_rounding

_SHAPING = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose")
_POOLING = ("GlobalAveragePool", "AveragePool", "ReduceMean", "Gather", "Slice")
_READ = ("Gemm", "MatMul", "Conv", "Einsum")
_TRANSPARENT = ("Identity", "Dropout", "Cast")
_INTEGER = ("MatMulInteger", "ConvInteger", "QLinear", "QGemm")
_SCALING = 6  # values from an integer product to the float that it becomes
_LONGEST = 64


@dataclass(frozen=True)
class Layer:
    """A linear layer as the graph has it: `source` times `weight` [out, in] plus `bias` [out]."""

    source: str
    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    kind: str


@dataclass(frozen=True)
class Affine:
    """`out = scale · value + shift`, channel by channel."""

    value: str
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """A linear layer below the logits with everything between folded in; not yet proven.

    `target` is the logits as a function of the value that the layer really makes: the logits themselves, or what
    they were before the model rounded them (QuantizeLinear). `normalised` says that a computed value divides the
    layer's output, as in `h·wᵀ / (‖h‖·‖w‖)`: the features are then `h/‖h‖`. `scale` is the constant factor that
    is part of the layer's weight.
    """

    layer: Layer
    path: tuple[NodeProto, ...]  # pooling and shape nodes from the layer to the logits, in graph order
    target: Affine
    rounded: bool
    normalised: bool
    scale: NDArray[np.float64]


def trace(index: GraphIndex, logits: str) -> Trace | str:
    """The linear layer that makes the logits, or in words what stands in the way."""
    try:
        return _trace(index, logits)
    except ValueError:  # numpy cannot broadcast them
        return "the constants around the last layer do not fit its outputs"


def _trace(index: GraphIndex, logits: str) -> Trace | str:
    here = Affine(logits, np.ones(1), np.zeros(1))
    target, normalised = here, False
    path: list[NodeProto] = []
    for _ in range(_LONGEST):
        node = index.producer(here.value)
        if node is None:
            return "no linear layer lies between the input and the logits"
        layer = _layer(index, node)
        if layer is not None:
            folded = _fold(layer, here)
            return Trace(folded, tuple(reversed(path)), target, target.value != logits, normalised, here.scale)
        step = _step(index, node)
        before = before_rounding(index, node)
        if step is not None:
            here = Affine(step.value, here.scale * step.scale, here.shift + here.scale * step.shift)
            path += [node] if node.op_type in (*_SHAPING, *_POOLING) else []
        elif before is not None and not any(other.op_type in _POOLING for other in path):
            here = target = Affine(before, here.scale, here.shift)
        elif node.op_type == "Div" and not normalised:
            here, normalised = Affine(node.input[0], here.scale, here.shift), True
        else:
            return _obstacle(index, node)
    return "no linear layer was found near the logits"


def append_features(model: onnx.ModelProto, found: Trace, rank: int | None) -> str:
    """Append the nodes that make the features [batch, D]; the answer names them."""
    value = found.layer.source
    last = max((i for i, node in enumerate(found.path) if node.op_type in _POOLING), default=-1)
    for node in found.path[: last + 1]:
        value = _replay(model, node, value, found.layer)
    if last >= 0 or rank != 2:
        value = append_node(model, "Flatten", [value], "airlock_features", axis=1)
    if found.normalised:
        return append_node(model, "LpNormalization", [value], "airlock_features", axis=1, p=2)
    if value in {entry.name for entry in model.graph.input}:
        return append_node(model, "Identity", [value], "airlock_features")
    return value


def append_target(model: onnx.ModelProto, found: Trace, dtype: np.dtype[Any]) -> str:
    """Append the logits as they are before the model rounds them; the answer names them."""
    target = found.target
    name = append_node(model, "Flatten", [target.value], "airlock_unrounded", axis=1)
    if (target.scale != 1).any():
        factor = append_constant(model, target.scale.astype(dtype), "airlock_scale")
        name = append_node(model, "Mul", [name, factor], "airlock_unrounded")
    if target.shift.any():
        offset = append_constant(model, target.shift.astype(dtype), "airlock_shift")
        name = append_node(model, "Add", [name, offset], "airlock_unrounded")
    return name


def _fold(layer: Layer, here: Affine) -> Layer:
    weight = here.scale[:, None] * layer.weight
    bias = here.scale * layer.bias + here.shift
    return Layer(layer.source, weight, np.broadcast_to(bias, len(weight)).copy(), layer.kind)


def _obstacle(index: GraphIndex, node: NodeProto) -> str:
    if before_rounding(index, node) is not None:
        return "the last layer's values are rounded (QuantizeLinear) before they are averaged"
    if node.op_type in ("DequantizeLinear", "Mul"):
        near = (index.producer(name) for name in index.upstream(node.output[0], _SCALING))
        integer = next((made.op_type for made in near if made and made.op_type.startswith(_INTEGER)), None)
        if integer or node.op_type == "DequantizeLinear":
            return f"the last layer is computed in integers ({integer or node.op_type})"
    if node.op_type in _READ:
        why = "whose form is not read as a head (weights that are computed or stand on the left, a transposed input)"
    else:
        why = "which is no linear layer"
    return f"the logits come from a {node.op_type} node ('{node.output[0]}'), {why}"


def _layer(index: GraphIndex, node: NodeProto) -> Layer | None:
    readers = {"Gemm": _gemm, "MatMul": _matmul, "Conv": _conv, "Einsum": _einsum}
    reader = readers.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    return reader(index, node) if reader else None


def _gemm(index: GraphIndex, node: NodeProto) -> Layer | None:
    attrs = attributes(node)
    weight = index.constant(node.input[1])
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = _vector(index, node.input[2]) if has_bias else np.zeros(1)
    if weight is None or bias is None or attrs.get("transA", 0):
        return None
    oriented = weight if attrs.get("transB", 0) else weight.T
    return _make(node.input[0], attrs.get("alpha", 1.0) * _wide(oriented), attrs.get("beta", 1.0) * bias, "gemm")


def _matmul(index: GraphIndex, node: NodeProto) -> Layer | None:
    weight = index.constant(node.input[1])
    if weight is None or weight.ndim > 2 or index.constant(node.input[0]) is not None:
        return None
    return _make(node.input[0], _wide(weight.reshape(len(weight), -1)).T, np.zeros(1), "matmul")


def _conv(index: GraphIndex, node: NodeProto) -> Layer | None:
    """A 1×1 convolution, or one whose kernel spans its whole input; the proof tells the latter from any other."""
    attrs = attributes(node)
    weight = index.constant(node.input[1])
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = _vector(index, node.input[2]) if has_bias else np.zeros(1)
    if weight is None or bias is None or attrs.get("group", 1) != 1 or any(attrs.get("pads", ())):
        return None
    kind = "conv1x1" if all(size == 1 for size in weight.shape[2:]) else "conv"
    return _make(node.input[0], _wide(weight.reshape(len(weight), -1)), bias, kind)


def _einsum(index: GraphIndex, node: NodeProto) -> Layer | None:
    terms = attributes(node)["equation"].decode().replace(" ", "").split("->")
    factors = terms[0].split(",")
    if len(terms) != 2 or len(factors) != 2:
        return None
    constants = [index.constant(name) for name in node.input]
    for slot in (0, 1):
        weight, letters, data = constants[slot], factors[slot], factors[1 - slot]
        if weight is None or constants[1 - slot] is not None or len(letters) != 2:
            continue
        made = [letter for letter in letters if letter in terms[1] and letter not in data]
        if len(made) == 1 and terms[1].endswith(made[0]):
            return _make(
                node.input[1 - slot], _wide(weight if letters[0] == made[0] else weight.T), np.zeros(1), "einsum"
            )
    return None


def _make(source: str, weight: NDArray[Any], bias: NDArray[Any], kind: str) -> Layer | None:
    if weight.ndim != 2 or bias.size not in (1, len(weight)):
        return None
    return Layer(source, np.ascontiguousarray(weight), np.broadcast_to(bias, len(weight)).copy(), kind)


def _step(index: GraphIndex, node: NodeProto) -> Affine | None:
    """The node as scale and shift by constants, where it is that, or where it leaves the numbers as they are."""
    if node.op_type in (*_TRANSPARENT, *_SHAPING) or _is_pooling(index, node):
        return Affine(node.input[0], np.ones(1), np.zeros(1))
    if node.op_type == "Neg":
        return Affine(node.input[0], -np.ones(1), np.zeros(1))
    if node.op_type == "BatchNormalization":
        return _batch_norm(index, node)
    if node.op_type not in ("Add", "Sub", "Mul", "Div"):
        return None
    left, right = (_vector(index, name) for name in node.input)
    if (left is None) == (right is None):
        return None
    one, zero = np.ones(1), np.zeros(1)
    if right is not None:
        data = node.input[0]
        forms = {"Add": (one, right), "Sub": (one, -right), "Mul": (right, zero), "Div": (1 / right, zero)}
    else:
        assert left is not None
        data = node.input[1]
        forms = {"Add": (one, left), "Sub": (-one, left), "Mul": (left, zero)}
    return Affine(data, *forms[node.op_type]) if node.op_type in forms else None


def _batch_norm(index: GraphIndex, node: NodeProto) -> Affine | None:
    parts = [_vector(index, name) for name in node.input[1:5]]
    if any(part is None for part in parts):
        return None
    gain, offset, mean, variance = (np.asarray(part) for part in parts)
    scale = gain / np.sqrt(variance + attributes(node).get("epsilon", 1e-5))
    return Affine(node.input[0], scale, offset - scale * mean)


def _is_pooling(index: GraphIndex, node: NodeProto) -> bool:
    if node.op_type not in _POOLING:
        return False
    return all(index.constant(name) is not None for name in node.input[1:] if name)


def _replay(model: onnx.ModelProto, node: NodeProto, value: str, layer: Layer) -> str:
    """The same pooling or shape node over the layer's input; a Reshape's channel count becomes the input's."""
    inputs = [value, *node.input[1:]]
    if node.op_type == "Reshape":
        shape = GraphIndex(model).constant(node.input[1])
        if shape is not None:
            outputs, channels = layer.weight.shape
            inputs[1] = append_constant(model, np.where(shape == outputs, channels, shape), "airlock_shape")
    return append_node(model, node.op_type, inputs, "airlock_pooled", **attributes(node))


def _vector(index: GraphIndex, name: str) -> NDArray[np.float64] | None:
    """A constant with at most one axis that is longer than one, flat."""
    value = index.constant(name)
    if value is None or value.dtype.kind not in "fiu" or (value.ndim and value.size > max(value.shape)):
        return None
    return _wide(value.reshape(-1))


def _wide(value: NDArray[Any]) -> NDArray[np.float64]:
    return value.astype(np.float64)
