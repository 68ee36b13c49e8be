"""The numerical proof that a traced layer is the head: end to end on random inputs, and at the layer itself."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from models.errors import ModelsError
from models.graph import part
from models.opening.head import Trace
from models.opening.probe import PLAIN
from models.runtime import Session
from models.signals import Head

Values = Mapping[str, NDArray[Any]]

_WORDS = {
    "gemm": "linear layer (Gemm)",
    "matmul": "linear layer (MatMul)",
    "einsum": "linear layer (Einsum)",
    "conv1x1": "1×1 convolution",
    "conv": "convolution over the whole map",
    "cosine": "cosine layer (features of unit length)",
}


_BIAS_ROUNDING = 1e-3
"""What ONNX Runtime adds where int8 rounding follows a layer: it then rounds the layer's float bias to integers too."""


def tolerance(dtype: np.dtype[Any]) -> float:
    """The deviation that rounding alone can cause."""
    return 5e-3 if dtype == np.float16 else 2e-5


def deviation_on_inputs(found: Trace, features: str, values: Values) -> float:
    """The worst deviation over values that came from random inputs of the whole model."""
    if features not in values or found.target.value not in values:
        return float("inf")
    made = values[found.target.value]
    target = made.reshape(len(made), -1).astype(np.float64) * found.target.scale + found.target.shift
    return deviation(values[features], found.layer.weight, found.layer.bias, target)


def deviation_at_layer(model: onnx.ModelProto, found: Trace, features: str, example: NDArray[Any]) -> float:
    """The worst deviation when random numbers of the example's shape are put straight into the layer.

    A network may answer every random input with nearly the same features; numbers put into the layer test every
    direction of its weights. Zero where nothing more can be tested: the layer reads the model's input itself, or the
    part after it needs that input too (for its shape).
    """
    source = found.layer.source
    entry = helper.make_tensor_value_info(
        source, helper.np_dtype_to_tensor_dtype(example.dtype), ["rows", *example.shape[1:]]
    )
    outputs = [name for name in dict.fromkeys((features, found.target.value)) if name != source]
    cut = part(model, outputs, entry)
    if cut is None or source in {value.name for value in model.graph.input}:
        return 0.0
    scales = np.array([0.1, 1, 10, 1]).reshape(-1, *(1 for _ in example.shape[1:]))
    x = (scales * np.random.default_rng(7).normal(size=(4, *example.shape[1:]))).astype(example.dtype)
    try:
        made = Session(cut, PLAIN).run(x, outputs)
    except ModelsError:
        return float("inf")
    return deviation_on_inputs(found, features, {source: x, **dict(zip(outputs, made, strict=True))})


def deviation(features: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any], logits: NDArray[Any]) -> float:
    """How far `h·Wᵀ + b` is from the logits at worst, in units of what rounding acts on, `|h|·|W|ᵀ + |b|`.

    The unit is nowhere below its median: constants that cancel leave rounding that `W` and `b` no longer show.
    """
    if features.ndim != 2 or features.shape[1] != weight.shape[1] or logits.shape != (len(features), len(weight)):
        return float("inf")
    h, z = features.astype(np.float64), logits.astype(np.float64)
    rows = np.isfinite(h).all(1) & np.isfinite(z).all(1)
    if not rows.any():
        return float("inf")
    h, z = h[rows], z[rows]
    scale = np.abs(h) @ np.abs(weight).T + np.abs(bias)
    error = np.abs(h @ weight.T + bias - z)
    return float((error / np.maximum(scale, max(np.median(scale), np.finfo(np.float32).tiny))).max())


def prove(
    model: onnx.ModelProto, found: Trace, features: str, values: Values, example: NDArray[Any] | None
) -> tuple[Head | None, str]:
    """The head, if numbers confirm it, and the sentence that says so or says by how much they do not."""
    worst, found = min(((_worst(model, way, features, values, example), way) for way in _ways(found)), key=_first)
    layer = found.layer
    classes, width = layer.weight.shape
    limit = tolerance(values[features].dtype) if features in values else 0.0
    if found.rounded and example is not None and 0 < deviation_at_layer(model, found, features, example) <= limit:
        limit = max(limit, _BIAS_ROUNDING)  # by its own arithmetic the layer is exact, which is what was to be proven
    if not worst <= limit:
        return None, (
            f"A {_WORDS[layer.kind]} {width} → {classes} stands before the logits, but h·Wᵀ + b differs from them by "
            f"{worst:.1e} of their scale on random inputs (rounding explains {limit:.0e}), so it is not used as a "
            "head; scores that read only the logits remain possible."
        )
    kind = "cosine" if _unit_length(values[features]) else layer.kind
    sentence = (
        f"The head is a {_WORDS[kind]} {width} → {classes} on the features '{features}'; h·Wᵀ + b equals the logits "
        f"on {len(values[features])} random inputs to {worst:.0e} of their scale."
    )
    if found.rounded:
        sentence += (
            " The model rounds its logits after the head (QuantizeLinear): they are taken before rounding, except "
            "where rounding changes the top class, so that the label stays the model's own."
        )
    return Head(layer.weight, layer.bias, kind), sentence


def _ways(found: Trace) -> Iterator[Trace]:
    """The trace as it is; where the graph divides by a computed norm, also with the weights' own norms divided out."""
    yield found
    if found.normalised:
        norms = np.linalg.norm(found.layer.weight, axis=1, keepdims=True)
        factor = np.abs(found.scale).reshape(-1, 1) / np.maximum(norms, np.finfo(np.float64).tiny)
        weight = factor * found.layer.weight
        yield replace(found, layer=replace(found.layer, weight=weight))


def _worst(model: onnx.ModelProto, found: Trace, features: str, values: Values, example: NDArray[Any] | None) -> float:
    worst = deviation_on_inputs(found, features, values)
    if example is not None:
        worst = max(worst, deviation_at_layer(model, found, features, example))
    return worst


def _first(pair: tuple[float, Trace]) -> float:
    return pair[0]


def _unit_length(features: NDArray[Any]) -> bool:
    lengths = np.linalg.norm(features.astype(np.float64), axis=1)
    return features.shape[1] > 1 and bool(np.allclose(lengths, 1, atol=1e-3))
