"""Classifiers of many makes for the tests of opening: small, seeded, built by hand, by scikit-learn or by torch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, HIDDEN, CLASSES = 6, 8, 5


class Net:
    """Builds a graph node by node; arrays given as inputs become weights."""

    def __init__(
        self, *shape: int | str | None, dtype: Any = np.float32, batch: Any = "batch", opset: int = 18, seed: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.opset = opset
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs = [helper.make_tensor_value_info("x", kind, [batch, *shape])]

    def random(self, *shape: int, scale: float = 0.5, dtype: Any = np.float32) -> np.ndarray:
        return (scale * self.rng.normal(size=shape)).astype(dtype)

    def add(self, op: str, *inputs: Any, domain: str = "", outputs: int = 1, **attrs: Any) -> str:
        names = [self.store(item) if isinstance(item, np.ndarray | np.generic) else item for item in inputs]
        made = [f"{op.lower()}_{len(self.nodes)}" + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, names, made, domain=domain, **attrs))
        return made[0]

    def store(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def model(self, *outputs: str, kind: int = TensorProto.FLOAT, ir_version: int = 8) -> onnx.ModelProto:
        made = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "zoo", self.inputs, made, self.weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("ai.onnx.ml", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)

    # common parts

    def hidden(self, x: str = "x", dtype: Any = np.float32) -> str:
        """x [B, 6] → relu features [B, 8]."""
        weight, bias = self.random(WIDTH, HIDDEN, dtype=dtype), self.random(HIDDEN, dtype=dtype)
        return self.add("Relu", self.add("Gemm", x, weight, bias))

    def head(self, h: str, classes: int = CLASSES, width: int = HIDDEN) -> str:
        return self.add("Gemm", h, self.random(width, classes), self.random(classes))

    def feature_map(self, x: str = "x", channels: int = 1) -> str:
        """x [B, c, 9, 9] → relu map [B, 8, 7, 7]."""
        return self.add("Relu", self.add("Conv", x, self.random(HIDDEN, channels, 3, 3), self.random(HIDDEN)))

    def tokens(self) -> str:
        """x [B, 4, 6] → tokens [B, 4, 8]."""
        return self.add(
            "Tanh", self.add("Add", self.add("MatMul", "x", self.random(WIDTH, HIDDEN)), self.random(HIDDEN))
        )


Maker = Callable[[], onnx.ModelProto]


def _dense(finish: Callable[[Net, str], str], *, classes: int = CLASSES) -> Maker:
    """x → hidden → Gemm → whatever `finish` appends."""

    def make() -> onnx.ModelProto:
        net = Net(WIDTH)
        return net.model(finish(net, net.head(net.hidden(), classes)))

    return make


def _image(finish: Callable[[Net, str], str]) -> Maker:
    def make() -> onnx.ModelProto:
        net = Net(1, 9, 9)
        return net.model(finish(net, net.feature_map()))

    return make


def _sequence(finish: Callable[[Net, str], str]) -> Maker:
    def make() -> onnx.ModelProto:
        net = Net(4, WIDTH)
        return net.model(finish(net, net.tokens()))

    return make


def gemm_transposed() -> onnx.ModelProto:
    net = Net(WIDTH)
    bias = net.random(CLASSES)
    return net.model(net.add("Gemm", net.hidden(), net.random(CLASSES, HIDDEN), bias, transB=1, alpha=0.7, beta=1.5))


def matmul_add() -> onnx.ModelProto:
    net = Net(WIDTH)
    return net.model(net.add("Add", net.random(CLASSES), net.add("MatMul", net.hidden(), net.random(HIDDEN, CLASSES))))


def einsum() -> onnx.ModelProto:
    net = Net(WIDTH)
    return net.model(net.add("Einsum", net.hidden(), net.random(CLASSES, HIDDEN), equation="bd,cd->bc"))


def decomposed_softmax(net: Net, z: str) -> str:
    axis = np.array([1], np.int64)
    shifted = net.add("Sub", z, net.add("ReduceMax", z, axis, keepdims=1))
    exp = net.add("Exp", shifted)
    return net.add("Div", exp, net.add("ReduceSum", exp, axis, keepdims=1))


def scale_and_shift(net: Net, z: str) -> str:
    return net.add("Sub", net.random(CLASSES), net.add("Mul", np.float32(3), z))


def cooled_softmax(net: Net, z: str) -> str:
    return net.add("Softmax", net.add("Div", z, np.float32(4)), axis=1)


def batch_norm(net: Net, z: str) -> str:
    variance = np.abs(net.random(CLASSES)) + np.float32(0.5)
    return net.add("BatchNormalization", z, *(net.random(CLASSES) for _ in range(3)), variance)


def conv_before_pool(net: Net, h: str) -> str:
    z = net.add("Conv", h, net.random(CLASSES, HIDDEN, 1, 1), net.random(CLASSES))
    return net.add("Flatten", net.add("GlobalAveragePool", z))


def conv_after_pool(net: Net, h: str) -> str:
    pooled = net.add("GlobalAveragePool", h)
    z = net.add("Conv", pooled, net.random(CLASSES, HIDDEN, 1, 1), net.random(CLASSES))
    return net.add("Squeeze", z, np.array([2, 3], np.int64))


def conv_channels_last(net: Net, h: str) -> str:
    z = net.add("Conv", h, net.random(CLASSES, HIDDEN, 1, 1))
    last = net.add("Add", net.add("Transpose", z, perm=[0, 2, 3, 1]), net.random(CLASSES))
    return net.add("ReduceMean", last, np.array([1, 2], np.int64), keepdims=0)


def conv_flat_positions(net: Net, h: str) -> str:
    z = net.add("Conv", h, net.random(CLASSES, HIDDEN, 1, 1), net.random(CLASSES))
    flat = net.add("Reshape", z, np.array([0, CLASSES, -1], np.int64))
    return net.add("ReduceMean", flat, np.array([2], np.int64), keepdims=0)


def conv_whole_map(net: Net, h: str) -> str:
    return net.add("Flatten", net.add("Conv", h, net.random(CLASSES, HIDDEN, 7, 7, scale=0.1), net.random(CLASSES)))


def conv_relu_pool(net: Net, h: str) -> str:
    """SqueezeNet's ending: the ReLU between the layer and the pooling leaves no linear head."""
    z = net.add("Relu", net.add("Conv", h, net.random(CLASSES, HIDDEN, 1, 1), net.random(CLASSES)))
    return net.add("Flatten", net.add("GlobalAveragePool", z))


def tokens_mean(net: Net, t: str) -> str:
    return net.head(net.add("ReduceMean", t, np.array([1], np.int64), keepdims=0))


def tokens_first(net: Net, t: str) -> str:
    return net.head(net.add("Gather", t, np.array(0, np.int64), axis=1))


def tokens_all(net: Net, t: str) -> str:
    return net.head(net.add("Flatten", t), width=4 * HIDDEN)


def token_logits(net: Net, t: str) -> str:
    return net.add("Add", net.add("MatMul", t, net.random(HIDDEN, CLASSES)), net.random(CLASSES))


def head_then_mean(net: Net, t: str) -> str:
    return net.add("ReduceMean", token_logits(net, t), np.array([1], np.int64), keepdims=0)


def head_then_first(net: Net, t: str) -> str:
    picked = net.add("Slice", token_logits(net, t), *(np.array([i], np.int64) for i in (0, 1, 1)))
    return net.add("Squeeze", picked, np.array([1], np.int64))


def cosine() -> onnx.ModelProto:
    """Both sides normalised in the graph, times a learned scale."""
    net = Net(WIDTH)
    axis = np.array([1], np.int64)
    h, weight = net.hidden(), net.store(net.random(CLASSES, HIDDEN))
    unit_h = net.add("Div", h, net.add("Max", net.add("ReduceL2", h, axis), np.float32(1e-12)))
    unit_w = net.add("Div", weight, net.add("ReduceL2", weight, axis))
    cosines = net.add("MatMul", unit_h, net.add("Transpose", unit_w, perm=[1, 0]))
    return net.model(net.add("Mul", np.float32(9.0), cosines))


def cosine_by_division(weights_too: bool) -> Maker:
    """The product first, divided by the norms afterwards."""

    def make() -> onnx.ModelProto:
        net = Net(WIDTH)
        h, weight = net.hidden(), net.random(HIDDEN, CLASSES)
        norm = net.add("Max", net.add("ReduceL2", h, np.array([1], np.int64)), np.float32(1e-12))
        if weights_too:
            norm = net.add("Mul", norm, np.linalg.norm(weight, axis=0, keepdims=True))
        return net.model(net.add("Mul", net.add("Div", net.add("MatMul", h, weight), norm), np.float32(5)))

    return make


def binary_complement() -> onnx.ModelProto:
    net = Net(WIDTH)
    p = net.add("Sigmoid", net.head(net.hidden(), 1))
    return net.model(net.add("Concat", net.add("Sub", np.float32(1), p), p, axis=1))


def double() -> onnx.ModelProto:
    net = Net(WIDTH, dtype=np.float64)
    h = net.hidden(dtype=np.float64)
    weight, bias = net.random(HIDDEN, CLASSES, dtype=np.float64), net.random(CLASSES, dtype=np.float64)
    return net.model(net.add("Gemm", h, weight, bias), kind=TensorProto.DOUBLE)


def half(softmax: bool = False) -> Maker:
    def make() -> onnx.ModelProto:
        net = Net(WIDTH, dtype=np.float16)
        first, second, bias = (
            net.random(*s, dtype=np.float16) for s in ((WIDTH, HIDDEN), (HIDDEN, CLASSES), (CLASSES,))
        )
        h = net.add("Relu", net.add("MatMul", "x", first))
        z = net.add("Add", net.add("MatMul", h, second), bias)
        return net.model(net.add("Softmax", z, axis=1) if softmax else z, kind=TensorProto.FLOAT16)

    return make


def pixels() -> onnx.ModelProto:
    """uint8 images, converted inside."""
    net = Net(9, 9, 1, dtype=np.uint8)
    scaled = net.add("Mul", net.add("Cast", "x", to=TensorProto.FLOAT), np.float32(1 / 255))
    h = net.feature_map(net.add("Transpose", scaled, perm=[0, 3, 1, 2]))
    return net.model(net.head(net.add("Flatten", net.add("GlobalAveragePool", h))))


def token_ids(vocabulary: int = 37, length: int | str = 7) -> onnx.ModelProto:
    net = Net(length, dtype=np.int64)
    vectors = net.add("Gather", net.random(vocabulary, HIDDEN, scale=1), "x", axis=0)
    return net.model(net.head(net.add("Tanh", net.add("ReduceMean", vectors, np.array([1], np.int64), keepdims=0))))


def open_sizes() -> onnx.ModelProto:
    """A fully convolutional model that takes images of any size."""
    net = Net(3, "height", "width")
    return net.model(net.head(net.add("Flatten", net.add("GlobalAveragePool", net.feature_map(channels=3)))))


def fixed_batch(batch: int = 1, width: int = HIDDEN) -> onnx.ModelProto:
    """Reshapes to a written-in batch size; the width may be left to the operator (−1)."""
    net = Net(1, 9, 9, batch=batch)
    pooled = net.add("GlobalAveragePool", net.feature_map())
    return net.model(net.head(net.add("Reshape", pooled, np.array([batch, width], np.int64))))


def fixed_batch_class_token() -> onnx.ModelProto:
    """A vision transformer's class token, joined to the tokens for a batch of one, with one attention layer."""
    net = Net(4, WIDTH, batch=1)
    joined = net.add("Concat", net.random(1, 1, HIDDEN), net.tokens(), axis=1)
    split = net.add("Reshape", joined, np.array([1, 5, 2, HIDDEN // 2], np.int64))
    heads = net.add("Transpose", split, perm=[0, 2, 1, 3])
    keys = net.add("Transpose", split, perm=[0, 2, 3, 1])
    mixed = net.add("MatMul", net.add("Softmax", net.add("MatMul", heads, keys), axis=-1), heads)
    merged = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([1, 5, HIDDEN], np.int64))
    return net.model(tokens_first(net, net.add("Tanh", merged)))


def stubborn_batch() -> onnx.ModelProto:
    """Mixes the batch axis with another in a way that only works for three rows."""
    net = Net(WIDTH, batch=3)
    h = net.add("Reshape", net.hidden(), np.array([2, 3, 4], np.int64))
    back = net.add("Reshape", net.add("Mul", h, np.full((2, 3, 4), 2, np.float32)), np.array([3, HIDDEN], np.int64))
    return net.model(net.head(back))


def influencing_rows() -> onnx.ModelProto:
    """Quantises activations with a scale taken over the whole batch, as dynamic int8 quantisation does."""
    net = Net(WIDTH)
    h = net.hidden()
    quantised = net.add("DynamicQuantizeLinear", h, outputs=3)
    weight = net.rng.integers(-100, 100, (HIDDEN, CLASSES)).astype(np.int8)
    product = net.add("MatMulInteger", quantised, weight, f"{quantised}_2")
    scale = net.add("Mul", f"{quantised}_1", np.float32(0.01))
    return net.model(net.add("Mul", net.add("Cast", product, to=TensorProto.FLOAT), scale))


def random_noise() -> onnx.ModelProto:
    net = Net(WIDTH)
    h = net.hidden()
    return net.model(net.head(net.add("Add", h, net.add("RandomNormalLike", h))))


def every_opset(opset: int) -> onnx.ModelProto:
    """Conv, BatchNormalization, pooling, MatMul, Gemm and Softmax as they are written in a given opset."""
    net = Net(1, 9, 9, opset=opset)
    h = net.add("Conv", "x", net.random(HIDDEN, 1, 3, 3), net.random(HIDDEN), kernel_shape=[3, 3])
    variance = np.abs(net.random(HIDDEN)) + np.float32(0.5)
    h = net.add("BatchNormalization", h, *(net.random(HIDDEN) for _ in range(3)), variance, epsilon=1e-5)
    clipped = net.add("Clip", h, min=0.0, max=6.0) if opset < 11 else net.add("Clip", h, np.float32(0), np.float32(6))
    h = net.add("Flatten", net.add("GlobalAveragePool", clipped))
    h = net.add("Relu", net.add("Add", net.add("MatMul", h, net.random(HIDDEN, WIDTH)), net.random(WIDTH)))
    z = net.add("Gemm", net.add("Dropout", h), net.random(WIDTH, CLASSES), net.random(CLASSES))
    return net.model(net.add("Softmax", z, axis=1), ir_version=4 if opset < 13 else 8)


def weights_as_inputs() -> onnx.ModelProto:
    """As exporters wrote before IR version 4: every weight is listed as an input too."""
    net = Net(WIDTH, opset=9)
    model = net.model(net.head(net.hidden()), ir_version=3)
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return model


def local_function() -> onnx.ModelProto:
    """The hidden layer is a function of the model's own."""
    net = Net(WIDTH)
    h = net.add("Layer", "x", net.random(WIDTH, HIDDEN), domain="own")
    model = net.model(net.head(h))
    body = [helper.make_node("MatMul", ["a", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    model.functions.append(helper.make_function("own", "Layer", ["a", "w"], ["y"], body, [helper.make_opsetid("", 18)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def branching() -> onnx.ModelProto:
    """An If node whose branches read values from outside."""
    net = Net(WIDTH)
    h = net.hidden()
    sign = net.add("Greater", net.add("ReduceMax", net.store(np.ones(1, np.float32)), keepdims=0), np.float32(0))
    result = helper.make_empty_tensor_value_info("branch")
    then, other = (
        helper.make_graph([helper.make_node(op, [h], ["branch"])], op, [], [result]) for op in ("Identity", "Neg")
    )
    return net.model(net.head(net.add("If", sign, then_branch=then, else_branch=other)))


# Models with a head that must be found, by the kind it must be called.
WITH_HEAD: dict[str, tuple[Maker, str]] = {
    "gemm": (_dense(lambda net, z: z), "gemm"),
    "gemm transposed, alpha, beta": (gemm_transposed, "gemm"),
    "matmul + add": (matmul_add, "matmul"),
    "einsum": (einsum, "einsum"),
    "temperature": (_dense(lambda net, z: net.add("Div", z, np.float32(2.5))), "gemm"),
    "scale and shift": (_dense(scale_and_shift), "gemm"),
    "softmax": (_dense(lambda net, z: net.add("Softmax", z, axis=1)), "gemm"),
    "log-softmax": (_dense(lambda net, z: net.add("LogSoftmax", z, axis=1)), "gemm"),
    "temperature, softmax": (_dense(cooled_softmax), "gemm"),
    "softmax of elementary nodes": (_dense(decomposed_softmax), "gemm"),
    "independent sigmoids": (_dense(lambda net, z: net.add("Sigmoid", z)), "gemm"),
    "batch normalisation last": (_dense(batch_norm), "gemm"),
    "one logit": (_dense(lambda net, z: z, classes=1), "gemm"),
    "one probability": (_dense(lambda net, z: net.add("Sigmoid", z), classes=1), "gemm"),
    "one probability, flat": (
        _dense(lambda net, z: net.add("Squeeze", net.add("Sigmoid", z), np.array([1], np.int64)), classes=1), "gemm",
    ),
    "probability and complement": (binary_complement, "gemm"),
    "conv before pooling": (_image(conv_before_pool), "conv1x1"),
    "conv after pooling": (_image(conv_after_pool), "conv1x1"),
    "conv, channels last": (_image(conv_channels_last), "conv1x1"),
    "conv, flat positions": (_image(conv_flat_positions), "conv1x1"),
    "conv over the whole map": (_image(conv_whole_map), "conv"),
    "tokens: mean": (_sequence(tokens_mean), "gemm"),
    "tokens: first": (_sequence(tokens_first), "gemm"),
    "tokens: all": (_sequence(tokens_all), "gemm"),
    "tokens: head, then mean": (_sequence(head_then_mean), "matmul"),
    "tokens: head, then first": (_sequence(head_then_first), "matmul"),
    "cosine": (cosine, "cosine"),
    "cosine by division": (cosine_by_division(True), "cosine"),
    "cosine of features only": (cosine_by_division(False), "cosine"),
    "float64": (double, "gemm"),
    "float16": (half(), "matmul"),
    "float16 softmax": (half(softmax=True), "matmul"),
    "uint8 pixels": (pixels, "gemm"),
    "token ids": (token_ids, "gemm"),
    "open sizes": (open_sizes, "gemm"),
    "fixed batch": (fixed_batch, "gemm"),
    "fixed batch, open width": (lambda: fixed_batch(width=-1), "gemm"),
    "fixed batch of 4": (lambda: fixed_batch(4), "gemm"),
    "fixed batch, class token": (fixed_batch_class_token, "gemm"),
    "stubborn batch": (stubborn_batch, "gemm"),
    "weights as inputs": (weights_as_inputs, "gemm"),
    "local function": (local_function, "gemm"),
    "branching": (branching, "gemm"),
}  # fmt: skip

# Models that open without a head.
WITHOUT_HEAD: dict[str, Maker] = {
    "relu after the layer": _image(conv_relu_pool),
    "clipped logits": _dense(lambda net, z: net.add("Clip", z, np.float32(-1), np.float32(1))),
    "tanh logits": _dense(lambda net, z: net.add("Tanh", z)),
    "normalised sigmoids": _dense(lambda net, z: net.add("LpNormalization", net.add("Sigmoid", z), axis=1, p=1)),
    "influencing rows": influencing_rows,
}
