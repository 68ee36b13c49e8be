"""Small ONNX classifiers made by hand."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def dense_model(
    width: int = 8, hidden: int = 16, classes: int = 5, batch: int | str = "batch", seed: int = 0
) -> onnx.ModelProto:
    """x → Gemm → Relu → Gemm → logits."""
    rng = np.random.default_rng(seed)
    weights = {
        "w1": rng.normal(size=(width, hidden)) / np.sqrt(width),
        "b1": rng.normal(size=hidden) * 0.1,
        "w2": rng.normal(size=(hidden, classes)) / np.sqrt(hidden) * 3,
        "b2": rng.normal(size=classes) * 0.1,
    }
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "w1", "b1"], ["a"]),
            helper.make_node("Relu", ["a"], ["h"]),
            helper.make_node("Gemm", ["h", "w2", "b2"], ["z"]),
        ],
        "dense",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def pixel_model(size: int = 8, channels: int = 3, classes: int = 4) -> onnx.ModelProto:
    """NCHW floats → Conv → Relu → GlobalAveragePool → Flatten → Gemm."""
    rng = np.random.default_rng(1)
    weights = {
        "k": rng.normal(size=(6, channels, 3, 3)) / 5,
        "w": rng.normal(size=(6, classes)),
        "b": rng.normal(size=classes) * 0.1,
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["p"]),
            helper.make_node("Flatten", ["p"], ["h"]),
            helper.make_node("Gemm", ["h", "w", "b"], ["z"]),
        ],
        "pixels",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", channels, size, size])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", classes])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
