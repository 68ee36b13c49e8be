"""Opening classifiers: heads under any affine ending, heads that are none, and int8 models."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import zoo
from support.opening import dense, finding, rows, run_bare
from support.zoo import CLASSES, HIDDEN, WIDTH, Net

from models.classifier import Classifier
from models.graph import GraphIndex
from models.opening import head as reading

# heads


@st.composite
def endings(draw: st.DrawFn) -> list[tuple[str, int]]:
    steps = st.sampled_from(["scale", "divide", "shift", "from", "negate", "norm", "reshape", "pass", "drop"])
    return draw(st.lists(st.tuples(steps, st.integers(0, 1000)), max_size=6))


@given(steps=endings(), width=st.integers(1, 12), classes=st.integers(2, 7))
@settings(max_examples=40, deadline=None)
def test_any_affine_ending_folds_into_the_head(steps: list[tuple[str, int]], width: int, classes: int) -> None:
    net = Net(WIDTH)
    h = net.add("Relu", net.add("Gemm", "x", net.random(WIDTH, width), net.random(width)))
    z = net.add("MatMul", h, net.random(width, classes))
    for step, seed in steps:
        net.rng = np.random.default_rng(seed)
        vector = np.asarray(net.rng.uniform(0.5, 2, classes), np.float32)
        z = {
            "scale": lambda z, v: net.add("Mul", v[:1], z),
            "divide": lambda z, v: net.add("Div", z, v),
            "shift": lambda z, v: net.add("Add", v[None], z),
            "from": lambda z, v: net.add("Sub", v, z),
            "negate": lambda z, v: net.add("Neg", z),
            "norm": lambda z, v: net.add("BatchNormalization", z, v, v, v, v),
            "reshape": lambda z, v: net.add(
                "Reshape", net.add("Unsqueeze", z, np.array([2], np.int64)), np.array([-1, len(v)], np.int64)
            ),
            "pass": lambda z, v: net.add("Identity", z),
            "drop": lambda z, v: net.add("Dropout", z),
        }[step](z, vector)
    model = net.model(z)
    classifier = Classifier.open(model)
    assert classifier.head is not None, classifier.findings
    x = rows(8, WIDTH)
    signals = classifier.signals(x)
    np.testing.assert_allclose(signals.logits, run_bare(model, x)[0], rtol=1e-4, atol=1e-4)
    made = np.asarray(signals.features) @ classifier.head.weight.T + classifier.head.bias
    np.testing.assert_allclose(made, signals.logits, rtol=1e-3, atol=1e-4 * np.abs(signals.logits).max())


def test_a_layer_that_does_not_make_the_logits_is_not_called_a_head() -> None:
    """A convolution with a stride looks like a head that is averaged, but skips positions that the average sees."""
    net = Net(1, 9, 9)
    z = net.add("Conv", net.feature_map(), net.random(CLASSES, HIDDEN, 1, 1), net.random(CLASSES), strides=[2, 2])
    classifier = Classifier.open(net.model(net.add("Flatten", net.add("GlobalAveragePool", z))))
    assert classifier.head is None
    assert classifier.features is None
    assert "differs from them by" in finding(classifier, "not used as a head")


def test_features_that_never_move_do_not_hide_a_wrong_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network has features of zero on every input; the proof at the layer still sees its weights."""
    net = Net(WIDTH)
    dead = net.add("Relu", net.add("Gemm", "x", net.random(WIDTH, HIDDEN, scale=0), np.full(HIDDEN, -1, np.float32)))
    model = net.model(net.head(dead))
    head = Classifier.open(model).head
    assert head is not None
    real = reading._gemm

    def wrong(index: object, node: object) -> object:
        layer = real(index, node)  # type: ignore[arg-type]
        return None if layer is None else reading.Layer(layer.source, 2 * layer.weight, layer.bias, layer.kind)

    monkeypatch.setattr(reading, "_gemm", wrong)
    assert Classifier.open(model).head is None


# int8


class _Samples:
    """Calibration data in the form that ONNX Runtime's quantiser asks for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        rng = np.random.default_rng(5)
        self.batches = iter([{"x": rng.normal(0, 2, (16, *shape)).astype(np.float32)} for _ in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.batches, None)


@pytest.fixture
def quantise(tmp_path: Path) -> Callable[..., onnx.ModelProto]:
    from onnxruntime.quantization import QuantFormat, quantize_static

    def run(model: onnx.ModelProto, *, format: str = "QDQ", per_channel: bool = False) -> onnx.ModelProto:
        source, target = tmp_path / "float.onnx", tmp_path / "int8.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        shape = tuple(dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])
        quantize_static(source, target, _Samples(shape), quant_format=QuantFormat[format], per_channel=per_channel)
        return onnx.load(target)

    return run


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", ["gemm", "matmul + add", "conv after pooling", "softmax", "one probability"])
def test_int8_models_keep_their_head_and_their_label(
    name: str, per_channel: bool, quantise: Callable[..., onnx.ModelProto]
) -> None:
    model = quantise(zoo.WITH_HEAD[name][0](), per_channel=per_channel)
    classifier = Classifier.open(model)
    assert classifier.logits_kind == "logits"
    assert classifier.head is not None, classifier.findings
    finding(classifier, "QuantizeLinear")
    x = rows(200, *(size or 1 for size in classifier.input_shape))
    given, signals = run_bare(model, x)[0].reshape(200, -1), classifier.signals(x)
    if given.shape[1] > 1:
        np.testing.assert_array_equal(signals.logits.argmax(1), given.argmax(1))
    made = np.asarray(signals.features, np.float64) @ classifier.head.weight.T + classifier.head.bias
    exact = np.isclose(made, signals.logits, rtol=1e-4, atol=1e-4).all(1)
    assert exact.mean() > 0.9  # the others are ties that rounding decides
    assert len(np.unique(signals.logits)) > 256


def test_an_int8_head_with_a_float_bias_is_found() -> None:
    """The runtime turns such a bias into integers, so that the logits it serves are a little off `h·Wᵀ + b`."""
    net = Net(WIDTH, opset=13)
    zero, step = np.uint8(0), np.float32(0.05)
    h = net.add("DequantizeLinear", net.add("QuantizeLinear", net.hidden(), step, zero), step, zero)
    weight = net.rng.integers(-127, 128, (HIDDEN, CLASSES)).astype(np.int8)
    steps = net.rng.uniform(0.01, 0.02, CLASSES).astype(np.float32)
    w = net.add("DequantizeLinear", weight, steps, np.zeros(CLASSES, np.int8), axis=1)
    z = net.add("Add", net.add("MatMul", h, w), net.random(CLASSES))
    out, middle = np.float32(0.2), np.uint8(128)
    model = net.model(net.add("DequantizeLinear", net.add("QuantizeLinear", z, out, middle), out, middle))
    classifier = Classifier.open(model)
    assert classifier.head is not None, classifier.findings
    np.testing.assert_allclose(classifier.head.weight, (weight * steps).T, rtol=1e-6)
    x = rows(200, WIDTH)
    np.testing.assert_array_equal(classifier.signals(x).logits.argmax(1), run_bare(model, x)[0].argmax(1))


def test_rounding_excuses_no_wrong_head(
    monkeypatch: pytest.MonkeyPatch, quantise: Callable[..., onnx.ModelProto]
) -> None:
    model = quantise(zoo.WITH_HEAD["gemm"][0]())
    read = reading._gemm

    def slightly_wrong(index: GraphIndex, node: onnx.NodeProto) -> reading.Layer | None:
        layer = read(index, node)
        return layer and replace(layer, weight=layer.weight * (1 + 1e-4))

    monkeypatch.setattr(reading, "_gemm", slightly_wrong)
    assert Classifier.open(model).head is None


def test_rounded_probabilities_decide_the_label_where_they_tie(quantise: Callable[..., onnx.ModelProto]) -> None:
    model = quantise(zoo.WITH_HEAD["softmax"][0]())
    classifier = Classifier.open(model)
    x = rows(3000, WIDTH, seed=9)
    p, logits = run_bare(model, x)[0], classifier.signals(x).logits
    ties = (p == p.max(1, keepdims=True)).sum(1) > 1
    assert ties.any()
    np.testing.assert_array_equal(logits.argmax(1), p.argmax(1))
    assert len(np.unique(logits)) > 3000


def test_int8_rounding_before_the_average_leaves_no_exact_head(quantise: Callable[..., onnx.ModelProto]) -> None:
    classifier = Classifier.open(quantise(zoo.WITH_HEAD["conv before pooling"][0]()))
    assert classifier.head is None
    finding(classifier, "rounded (QuantizeLinear) before they are averaged")


def test_integer_arithmetic_opens_without_a_head(quantise: Callable[..., onnx.ModelProto]) -> None:
    classifier = Classifier.open(quantise(dense(), format="QOperator"))
    assert classifier.head is None
    finding(classifier, "computed in integers")
