"""Which output holds the class scores, and what scikit-learn operators hide before theirs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from models.errors import ClassifierError
from models.graph import FLOAT_TYPES, GraphIndex, append_constant, append_node, attributes, fresh_name, value_names
from models.opening.forms import as_rows, explains

_LABEL_TYPES = (TensorProto.INT64, TensorProto.INT32, TensorProto.STRING)
_NEAR = 12


def score_outputs(model: onnx.ModelProto, wanted: str | None) -> list[str]:
    """The values that may hold class scores: the wanted one, or every float output (a ZipMap's input for its maps)."""
    declared = {value.name: value for value in model.graph.output}
    index = GraphIndex(model)
    if wanted is not None:
        if wanted not in declared and index.producer(wanted) is None:
            raise ClassifierError(f"The model has no output '{wanted}'; it has {_quoted(declared)}.")
        return [_before_zipmap(index, wanted)]
    found = []
    for name, value in declared.items():
        tensor = _before_zipmap(index, name)
        if tensor != name or value.type.tensor_type.elem_type in FLOAT_TYPES:
            found.append(tensor)
    if not found:
        raise ClassifierError(
            f"The model gives {_quoted(declared)} and none of them is a float tensor of class scores; export it with "
            "its logits or probabilities as an output."
        )
    return found


def label_output(model: onnx.ModelProto) -> str | None:
    """The output that gives the predicted class itself, where there is one."""
    names = [value.name for value in model.graph.output if value.type.tensor_type.elem_type in _LABEL_TYPES]
    return names[0] if len(names) == 1 else None


def choose_output(
    candidates: Sequence[str], values: Mapping[str, NDArray[Any]], n: int, label: NDArray[Any] | None
) -> str:
    """The one output that gives a row of class scores for each of `n` inputs."""
    shaped = {name: rows for name in candidates if (rows := as_rows(values.get(name))) is not None}
    if not shaped:
        shapes = ", ".join(f"'{name}' {_shape(values.get(name))}" for name in candidates)
        raise ClassifierError(
            f"For {n} inputs the model gives {shapes}; a classifier gives one row of class scores for each input, "
            "[batch, classes]."
        )
    names = [n for n in shaped if not any(explains(shaped[m], shaped[n]) for m in shaped if m != n)] or list(shaped)
    if len(names) > 1 and label is not None and label.dtype.kind in "iu":
        fitting = [name for name in names if np.array_equal(shaped[name].argmax(1), label.reshape(-1))]
        names = fitting or names
    if len(names) > 1:
        listed = ", ".join(f"'{name}' {_shape(values[name])}" for name in names)
        raise ClassifierError(
            f"The model has {len(names)} outputs that could be the class scores (for {n} inputs {listed}); "
            "name the one to use (--output)."
        )
    return names[0]


def unfold(model: onnx.ModelProto, outputs: Sequence[str]) -> list[str]:
    """Append what scikit-learn operators hide before their own softmax or sigmoid; the answer names the raw scores."""
    index = GraphIndex(model)
    near = {name for output in outputs for name in index.upstream(output, _NEAR)}
    raw = []
    for node in list(model.graph.node):
        if node.domain != "ai.onnx.ml" or len(node.output) < 2 or node.output[1] not in near:
            continue
        if node.op_type == "LinearClassifier":
            raw.append(_unfold_linear(model, node))
        elif node.op_type == "TreeEnsembleClassifier" and attributes(node).get("post_transform", b"NONE") != b"NONE":
            raw.append(_unfold_tree(model, node))
    return raw


def _unfold_linear(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    attrs = attributes(node)
    intercepts = np.asarray(attrs.get("intercepts", [0.0]), np.float32)
    rows = np.asarray(attrs["coefficients"], np.float32).reshape(len(intercepts), -1)
    x = append_node(model, "Cast", [node.input[0]], "airlock_input", to=TensorProto.FLOAT)
    weight = append_constant(model, np.ascontiguousarray(rows.T), "airlock_coefficients")
    bias = append_constant(model, intercepts, "airlock_intercepts")
    return append_node(model, "Gemm", [x, weight, bias], "airlock_decision")


def _unfold_tree(model: onnx.ModelProto, node: onnx.NodeProto) -> str:
    """The same trees once more, without their last step; the first copy dies with the output it served."""
    raw = onnx.NodeProto()
    raw.CopyFrom(node)
    for attribute in raw.attribute:
        if attribute.name == "post_transform":
            attribute.s = b"NONE"
    taken = value_names(model.graph)
    raw.name = fresh_name(taken, "airlock_trees")
    raw.output[:] = [fresh_name(taken, "airlock_trees_label"), raw.name]
    model.graph.node.append(raw)
    return str(raw.name)


def _before_zipmap(index: GraphIndex, name: str) -> str:
    node = index.producer(name)
    return str(node.input[0]) if node is not None and node.op_type == "ZipMap" else name


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _shape(value: NDArray[Any] | None) -> str:
    return "of another number of rows" if value is None else f"[{', '.join(str(size) for size in value.shape)}]"
