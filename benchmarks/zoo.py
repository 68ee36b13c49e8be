"""Models that several benchmarks run, made by hand with random weights: sizes are real, answers are not."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Builder:
    """Nodes and weights of a float32 graph, in order."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int, fan_in: int) -> str:
        values = self.rng.normal(size=shape) * np.sqrt(2 / fan_in)
        return self._store(values)

    def bias(self, size: int) -> str:
        return self._store(np.zeros(size))

    def _store(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, size: int, stride: int = 1) -> str:
        kernel = self.weight(outputs, inputs, size, size, fan_in=inputs * size * size)
        pad = size // 2
        return self.node("Conv", x, kernel, self.bias(outputs), strides=[stride, stride], pads=[pad] * 4)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        return self.node("Gemm", x, self.weight(inputs, outputs, fan_in=inputs), self.bias(outputs))

    def model(self, shape: tuple[int, ...], output: str, classes: int) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "benchmark",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", classes])],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def resnet18(classes: int = 1000) -> onnx.ModelProto:
    """ResNet-18 at 224 × 224 with batch norms folded: 11.7 M weights, 1.8 GFLOP an image."""
    b = _Builder()
    x = b.node("Relu", b.conv("x", 3, 64, 7, stride=2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            shortcut = x if stride == 1 and width == outputs else b.conv(x, width, outputs, 1, stride)
            inner = b.node("Relu", b.conv(x, width, outputs, 3, stride))
            x = b.node("Relu", b.node("Add", b.conv(inner, outputs, outputs, 3), shortcut))
            width = outputs
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.model((3, 224, 224), b.dense(x, 512, classes), classes)


def small_cnn(classes: int = 10) -> onnx.ModelProto:
    """A CNN of about a millisecond an image on one core: 32 × 32 × 3, 2.8 M weights."""
    b = _Builder()
    x = b.node("Relu", b.conv("x", 3, 32, 3))
    x = b.node("Relu", b.conv(x, 32, 64, 3, stride=2))
    x = b.node("Relu", b.conv(x, 64, 128, 3, stride=2))
    x = b.node("Relu", b.conv(x, 128, 256, 3, stride=2))
    x = b.node("Relu", b.conv(x, 256, 512, 3, stride=2))
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    x = b.node("Relu", b.dense(x, 512, 2048))
    return b.model((3, 32, 32), b.dense(x, 2048, classes), classes)


def tiny_mlp(inputs: int = 32, classes: int = 10) -> onnx.ModelProto:
    """Two hidden layers, about 9 k weights: the model that shows every overhead."""
    b = _Builder()
    x = b.node("Relu", b.dense("x", inputs, 96))
    x = b.node("Relu", b.dense(x, 96, 48))
    return b.model((inputs,), b.dense(x, 48, classes), classes)
