"""A fitted score as a graph by itself: what it costs and computes, without a classifier around it."""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from models.runtime import RuntimeOptions, Session
from models.signals import Signals

from .fitted import FittedScore
from .onnx_namespace import OnnxNamespace

SIGNALS, SCORE = "signals", "score"


def score_graph(fitted: FittedScore) -> onnx.ModelProto:
    """float32 [B, C + D] logits and features side by side → float64 [B]."""
    widths = [fitted.n_classes, fitted.dim] if fitted.uses_features else [fitted.n_classes]
    entry = helper.make_tensor_value_info(SIGNALS, TensorProto.FLOAT, ["batch", sum(widths)])
    model = helper.make_model(
        helper.make_graph([], "score", [entry], []), opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    )
    ns = OnnxNamespace(model)
    parts = [
        ns.node("Split", ns.value(SIGNALS), np.array(widths), outputs=len(widths), output=i, axis=1).name
        for i in range(len(widths))
    ]
    name = fitted.emit(ns, parts[0], parts[1] if len(parts) > 1 else None)
    model.graph.node.append(helper.make_node("Identity", [name], [SCORE]))
    model.graph.output.append(helper.make_tensor_value_info(SCORE, TensorProto.DOUBLE, ["batch"]))
    return model


class GraphScore:
    """A fitted score run by ONNX Runtime on signals."""

    def __init__(self, fitted: FittedScore, options: RuntimeOptions | None = None) -> None:
        self._fitted = fitted
        self._session = Session(score_graph(fitted), options or RuntimeOptions(provider="cpu", threads=1))

    def columns(self, signals: Signals) -> NDArray[np.float32]:
        """Signals as the graph's input."""
        parts = [signals.logits]
        if self._fitted.uses_features and signals.features is not None:
            parts.append(signals.features)
        return np.concatenate(parts, axis=1).astype(np.float32)

    def run(self, columns: NDArray[np.float32]) -> NDArray[np.float64]:
        return self._session.run(columns, [SCORE])[0]

    def compute(self, signals: Signals) -> NDArray[np.float64]:
        return self.run(self.columns(signals))
