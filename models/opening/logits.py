"""Which value of the graph holds the logits, decided by numbers: `softmax(value)` must equal what the model gives.

Testing values on random inputs needs no list of the ways in which exporters write a softmax: a node, a dozen
elementary nodes, a sigmoid with its complement, or a transformation inside a scikit-learn operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto

from models.errors import ClassifierError
from models.graph import GraphIndex, append_constant, append_node, before_rounding
from models.opening import forms
from models.opening.forms import as_rows

Values = Mapping[str, NDArray[Any]]
LOG = "log"
_SAME_NUMBERS = ("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Reading:
    """How an output is read: the value to take, what makes logits of it, what they are, and why, in words.

    `guard` is an output that the model rounds to int8 steps after its softmax: it decides the label, the logits
    before it decide everything else.
    """

    value: str
    recipe: str
    kind: str  # "logits" or "log_probabilities"
    why: str
    guard: str | None = None


def read_logits(output: str, raw: Sequence[str], values: Values, index: GraphIndex) -> Reading:
    """What the output is (logits, probabilities, log-probabilities…) and the value from which its logits come."""
    exact = _unrounded(output, index)
    if exact in values and exact != output:
        unrounded, rows = _finite_rows(exact, values)
        if forms.form(unrounded) in (forms.PROBABILITIES, forms.INDEPENDENT, forms.ONE_PROBABILITY):
            found = _search(exact, unrounded, rows, raw, values, index)
            guard = output if unrounded.shape[1] > 1 and found.kind == "logits" else None
            why = f"{found.why}; the model rounds '{output}' (QuantizeLinear)"
            if guard:
                why += ", which decides the class where rounding makes a tie"
            return Reading(found.value, found.recipe, found.kind, why, guard)
    return _search(output, *_finite_rows(output, values), raw, values, index)


def append_logits(model: onnx.ModelProto, read: Reading, values: Values) -> str:
    """Append the nodes that make logits [batch, classes] of the value that was read; the answer names them."""
    value = values[read.value]
    name = _as_matrix(model, read.value, value.ndim)
    if read.recipe in (forms.HALVED, forms.TWO_SIDED):
        # [−z/2, z/2] has the softmax of [0, z] and treats both classes alike: no row of the head is zero.
        factor = np.array(0.5 if read.recipe == forms.HALVED else [[-0.5, 0.5]], value.dtype)
        name = append_node(model, "Mul", [name, append_constant(model, factor, "airlock_half")], "airlock_logits")
    elif read.recipe == LOG:
        name = _append_log(model, name, value)
    return name


def append_guard(model: onnx.ModelProto, logits: str, read: Reading, rounded: str | None, values: Values) -> str:
    """The logits where they name the class that the model names after rounding, else the rounded ones.

    Rounding to int8 steps makes ties, and the model answers a tie with its first class. So the label stays what the
    model answers, while the logits before rounding keep the resolution that scores live on. `rounded` are rounded
    logits; a rounded output after the softmax decides before them.
    """
    fallback = rounded
    if read.guard is not None:
        decider = _as_matrix(model, read.guard, values[read.guard].ndim)
        fallback = _append_log(model, decider, values[read.guard])
        if values[read.guard].dtype == np.float16:
            fallback = append_node(model, "Cast", [fallback], "airlock_narrow", to=TensorProto.FLOAT16)
    if fallback is None:
        return logits
    tops = [append_node(model, "ArgMax", [name], "airlock_top", axis=1, keepdims=1) for name in (logits, fallback)]
    agree = append_node(model, "Equal", tops, "airlock_agree")
    return append_node(model, "Where", [agree, logits, fallback], "airlock_guarded")


def _search(
    output: str, given: NDArray[Any], rows: NDArray[np.bool_], raw: Sequence[str], values: Values, index: GraphIndex
) -> Reading:
    kind = forms.form(given)
    candidates = {name: found[rows] for name, value in values.items() if (found := as_rows(value)) is not None}
    if kind == forms.LOGITS:
        same = (name for name in raw if name in candidates and forms.equal(candidates[name], given))
        return _as_given(next(same, output), output, given)
    # The farthest match is the logits themselves; nearer ones are shifted by their maximum or already normalised.
    for name in sorted(candidates, key=lambda name: (name not in raw, index.position(name))):
        recipe = forms.recipe(candidates[name], given, kind) if name != output else None
        if recipe is not None:
            return Reading(name, recipe, "logits", f"'{output}' gives {kind}; its logits are the value '{name}'")
    if kind == forms.INDEPENDENT:
        return _as_given(output, output, given)
    if kind == forms.LOG_PROBABILITIES:
        why = f"'{output}' gives log-probabilities whose logits are not in the graph; they are taken as they are"
        return Reading(output, forms.PLAIN, "log_probabilities", why)
    why = f"'{output}' gives {kind} whose logits are not in the graph; log p stands for them"
    return Reading(output, LOG, "log_probabilities", why)


def _as_given(value: str, output: str, given: NDArray[Any]) -> Reading:
    if given.shape[1] > 1:
        return Reading(value, forms.PLAIN, "logits", f"'{output}' gives logits")
    why = f"'{output}' gives one column, read as the log-odds of class 1 against class 0"
    return Reading(value, forms.TWO_SIDED, "logits", why)


def _finite_rows(name: str, values: Values) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    given = as_rows(values[name])
    assert given is not None
    rows = np.isfinite(given).all(1)
    if not rows.any():
        raise ClassifierError(
            f"The output '{name}' is not finite on any random input; look for NaN or infinity in the model's weights."
        )
    return given[rows], rows


def _unrounded(output: str, index: GraphIndex) -> str:
    """What the output was before the model rounded it, itself where it does not."""
    value = found = output
    for _ in range(16):
        node = index.producer(value)
        if node is None:
            break
        before = before_rounding(index, node)
        if before is not None:
            value = found = before
        elif node.op_type in _SAME_NUMBERS:
            value = node.input[0]
        else:
            break
    return found


def _as_matrix(model: onnx.ModelProto, value: str, rank: int) -> str:
    if rank == 1:
        axis = append_constant(model, np.array([1], np.int64), "airlock_axis")
        return append_node(model, "Unsqueeze", [value, axis], "airlock_column")
    if rank > 2:
        return append_node(model, "Flatten", [value], "airlock_scores", axis=1)
    return value


def _append_log(model: onnx.ModelProto, name: str, value: NDArray[Any]) -> str:
    """log p, with p at least the smallest normal float32 so that it stays finite."""
    dtype = value.dtype
    if dtype == np.float16:
        name, dtype = append_node(model, "Cast", [name], "airlock_wide", to=TensorProto.FLOAT), np.dtype(np.float32)
    if value.reshape(len(value), -1).shape[1] == 1:
        one = append_constant(model, np.array(1, dtype), "airlock_one")
        other = append_node(model, "Sub", [one, name], "airlock_other")
        name = append_node(model, "Concat", [other, name], "airlock_both", axis=1)
    floor = append_constant(model, np.array(_TINY, dtype), "airlock_floor")
    return append_node(model, "Log", [append_node(model, "Max", [name, floor], "airlock_above")], "airlock_log")
