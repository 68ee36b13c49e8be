"""A model exported for one batch size becomes one for any, where that provably gives the same rows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from models.graph import GraphIndex, append_constant, attributes, fresh_name, value_names
from models.opening.probe import run
from models.runtime import Session

Rows = Mapping[str, NDArray[Any]]
AXIS = "batch"
_BATCHES = ([0], [0, 1], [0, 3], [1, 2, 0], [3, 4, 0])  # rows of a set of at least five
_MOST = 0.5


def freed(model: onnx.ModelProto, batch: int) -> Iterator[onnx.ModelProto]:
    """Copies with an open batch axis to be tried in turn: declared open, then with written-in sizes opened too."""
    plain = declare(model, None)
    yield plain
    opened = onnx.ModelProto()
    opened.CopyFrom(plain)
    index = GraphIndex(model)
    changes = [_open_reshape(opened, node, index, batch) for node in opened.graph.node]
    if batch == 1:
        changes.append(_open_concats(opened, index))
    if any(changes):
        yield opened


def declare(model: onnx.ModelProto, batch: int | None) -> onnx.ModelProto:
    """A copy whose input has the given batch size (None: open) and no shape notes that could contradict it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    axis = copy.graph.input[0].type.tensor_type.shape.dim[0]
    axis.Clear()
    if batch is None:
        axis.dim_param = AXIS
    else:
        axis.dim_value = batch
    for output in copy.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return copy


def agreeing(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows are equal up to rounding."""
    if left.shape != right.shape:
        return np.zeros(len(left), np.bool_)
    if left.dtype.kind != "f":
        return np.asarray((left == right).reshape(len(left), -1).all(1))
    tolerance = 5e-3 if left.dtype == np.float16 else 1e-4
    a, b = (value.reshape(len(value), -1).astype(np.float64) for value in (left, right))
    with np.errstate(invalid="ignore"):
        scale = np.abs(a).max(1, keepdims=True, initial=0.0)
        return np.asarray(((np.abs(a - b) <= tolerance * scale) | (a == b) | (np.isnan(a) & np.isnan(b))).all(1))


def any_size(session: Session, x: NDArray[Any], outputs: Sequence[str], truth: Rows, whole: Rows) -> bool:
    """Whether batches of 1, 2, 3 and all rows (`whole`) give the true rows, and rows do not influence each other.

    Batches of one size run the same arithmetic, so a row next to different neighbours must come out bit for bit the
    same: that finds int8 scales taken over a whole batch, which move a row only a little. Between sizes most rows
    rather than all must agree: another order of summation may be amplified by a network (a normalisation over nearly
    equal numbers), while a graph that mixes rows up gets most of them wrong.
    """
    made = [run(session, x[rows], outputs, None) for rows in _BATCHES]
    if not all(name in batch for batch in (*made, whole) for name in outputs):
        return False
    for one, two, place in ((1, 2, 0), (3, 4, 2)):
        if not all(_identical(made[one][name][place], made[two][name][place]) for name in outputs):
            return False
    parts = [agreeing(truth[name][rows], made[i][name]) for i, rows in enumerate(_BATCHES) for name in outputs]
    together = [agreeing(truth[name], whole[name]) for name in outputs]
    return all(np.concatenate(verdicts).mean() > _MOST for verdicts in (parts, together))


def _identical(left: NDArray[Any], right: NDArray[Any]) -> bool:
    return np.array_equal(left, right, equal_nan=left.dtype.kind == "f")


def _open_reshape(model: onnx.ModelProto, node: onnx.NodeProto, index: GraphIndex, batch: int) -> bool:
    """A Reshape to a written-in batch size takes the size from its input instead."""
    if node.op_type != "Reshape" or index.constant(node.input[0]) is not None:
        return False
    shape = index.constant(node.input[1])
    if shape is None or not shape.size or shape[0] != batch:
        return False
    opened = shape.copy()
    if (shape != -1).all():
        opened[0] = -1
    elif attributes(node).get("allowzero", 0) == 0:
        opened[0] = 0
    else:
        return False
    node.input[1] = append_constant(model, opened, f"{node.input[1]}_open")
    return True


def _open_concats(model: onnx.ModelProto, index: GraphIndex) -> bool:
    """A constant row joined to the data (a class token) is repeated for every row of the batch."""
    jobs = [
        (position, slot)
        for position, node in enumerate(model.graph.node)
        if node.op_type == "Concat" and attributes(node)["axis"] != 0
        for slot, name in enumerate(node.input)
        if _is_row(index.constant(name)) and any(index.constant(other) is None for other in node.input)
    ]
    for position, slot in reversed(jobs):
        _repeat_input(model, position, slot, index)
    return bool(jobs)


def _is_row(value: NDArray[Any] | None) -> bool:
    return value is not None and value.ndim > 1 and value.shape[0] == 1 and value.dtype.kind == "f"


def _repeat_input(model: onnx.ModelProto, position: int, slot: int, index: GraphIndex) -> None:
    graph = model.graph
    name = graph.node[position].input[slot]
    row = index.constant(name)
    assert row is not None
    ones = append_constant(model, np.ones(row.ndim - 1, np.int64), "airlock_ones")
    taken = value_names(graph)
    size, shape, repeated = (fresh_name(taken, f"airlock_{word}") for word in ("size", "shape", "row"))
    nodes: Sequence[onnx.NodeProto] = (
        helper.make_node("Shape", [graph.input[0].name], [size], start=0, end=1),
        helper.make_node("Concat", [size, ones], [shape], axis=0),
        helper.make_node("Expand", [name, shape], [repeated]),
    )
    graph.node[position].input[slot] = repeated
    for offset, node in enumerate(nodes):
        graph.node.insert(position + offset, node)
