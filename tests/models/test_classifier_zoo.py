"""What must hold for every classifier that opens, whoever made it; the truth is the model as it came, run bare."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.opening import softmax
from support.zoo import WITH_HEAD, WITHOUT_HEAD

from models.classifier import Classifier

MAKERS = {name: maker for name, (maker, _) in WITH_HEAD.items()} | WITHOUT_HEAD
_SIZES = {"height": 13, "width": 11}


def draw(model: onnx.ModelProto, n: int, seed: int = 11) -> np.ndarray:
    """`n` rows of the model's type and shape, from other numbers than opening uses."""
    tensor = model.graph.input[0].type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = [_SIZES.get(dim.dim_param, dim.dim_value) for dim in tensor.shape.dim[1:]]
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 37, (n, *shape)).astype(dtype)
    return rng.normal(0, 2, (n, *shape)).astype(dtype)


def run_bare(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """The first output, a row or a fixed batch at a time."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    size = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value or 1
    parts = [session.run(None, {"x": x[i : i + size]})[0] for i in range(0, len(x), size)]
    return np.concatenate(parts).reshape(len(x), -1).astype(np.float64)


@pytest.fixture(scope="module")
def opened() -> dict[str, Any]:
    return {}


@pytest.fixture(params=list(MAKERS))
def case(request: pytest.FixtureRequest, opened: dict[str, Any]) -> tuple[str, onnx.ModelProto, Classifier]:
    name = request.param
    if name not in opened:
        model = MAKERS[name]()
        opened[name] = (name, model, Classifier.open(model))
    return opened[name]


def tolerance(classifier: Classifier) -> float:
    return 2e-2 if classifier.input_dtype == np.float16 else 1e-4


def test_the_label_is_the_models_own(case: tuple[str, onnx.ModelProto, Classifier]) -> None:
    _, model, classifier = case
    x = draw(model, 12)
    given = run_bare(model, x)
    label = (given[:, 0] > (0.5 if (given >= 0).all() else 0)) if given.shape[1] == 1 else given.argmax(1)
    np.testing.assert_array_equal(classifier.signals(x).logits.argmax(1), label)


def test_the_logits_give_the_models_output(case: tuple[str, onnx.ModelProto, Classifier]) -> None:
    name, model, classifier = case
    x = draw(model, 12)
    given, z = run_bare(model, x), classifier.signals(x).logits.astype(np.float64)
    if given.shape[1] == 1:
        odds = z[:, 1] - z[:, 0]
        made = odds if name == "one logit" else 1 / (1 + np.exp(-odds))
        np.testing.assert_allclose(made, given[:, 0], rtol=1e-4, atol=1e-5)
    elif np.allclose(given.sum(1), 1, atol=5e-3) and (given >= 0).all():
        np.testing.assert_allclose(softmax(z), given, atol=tolerance(classifier) / 10)
    elif name == "log-softmax":
        np.testing.assert_allclose(np.log(softmax(z)), given, rtol=1e-4, atol=1e-4)
    elif name == "independent sigmoids":
        np.testing.assert_allclose(1 / (1 + np.exp(-z)), given, atol=1e-5)
    else:
        np.testing.assert_allclose(z, given, rtol=tolerance(classifier), atol=tolerance(classifier))


def test_rows_do_not_depend_on_the_batch(case: tuple[str, onnx.ModelProto, Classifier]) -> None:
    _, model, classifier = case
    x = draw(model, 7)
    together, single = classifier.signals(x), [classifier.signals(x[i : i + 1]) for i in range(7)]
    limit = tolerance(classifier)
    np.testing.assert_allclose(together.logits, np.concatenate([s.logits for s in single]), rtol=limit, atol=limit)
    assert len(classifier.signals(x[:0])) == 0


def test_the_graph_is_a_valid_recent_one(case: tuple[str, onnx.ModelProto, Classifier]) -> None:
    _, _, classifier = case
    onnx.checker.check_model(classifier.model, full_check=True)
    assert max(entry.version for entry in classifier.model.opset_import if entry.domain == "") >= 18
    outputs = [value.name for value in classifier.model.graph.output]
    assert outputs == [name for name in (classifier.logits, classifier.features) if name is not None]
    last = classifier.model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    assert last == classifier.n_classes


def test_it_opens_again_to_the_same(case: tuple[str, onnx.ModelProto, Classifier]) -> None:
    _, model, classifier = case
    x = draw(model, 5)
    again = Classifier.open(classifier.model, output=classifier.logits)
    parts = Classifier.from_parts(
        classifier.model, logits=classifier.logits, n_classes=classifier.n_classes,
        features=classifier.features, head=classifier.head, logits_kind=classifier.logits_kind,
    )  # fmt: skip
    for other in (again, parts):
        np.testing.assert_array_equal(other.signals(x).logits, classifier.signals(x).logits)
        assert other.fixed_batch == classifier.fixed_batch
        assert other.input_shape == classifier.input_shape


def test_findings_are_sentences(case: tuple[str, onnx.ModelProto, Classifier]) -> None:
    _, _, classifier = case
    assert len(classifier.findings) >= 3
    for finding in classifier.findings:
        assert finding[0].isupper()
        assert finding.endswith(".")
        assert "\n" not in finding


@pytest.mark.parametrize("name", list(WITH_HEAD))
def test_the_head_makes_the_logits_from_the_features(name: str, opened: dict[str, Any]) -> None:
    maker, kind = WITH_HEAD[name]
    model = maker()
    classifier = opened[name][2] if name in opened else Classifier.open(model)
    assert classifier.head is not None, classifier.findings
    assert classifier.features is not None
    assert classifier.head.kind == kind
    signals = classifier.signals(draw(model, 16, seed=12))
    h = np.asarray(signals.features, np.float64)
    made = h @ classifier.head.weight.T + classifier.head.bias
    assert classifier.head.weight.shape == (classifier.n_classes, h.shape[1])
    np.testing.assert_allclose(made, signals.logits, rtol=tolerance(classifier), atol=tolerance(classifier))


@pytest.mark.parametrize("name", list(WITHOUT_HEAD))
def test_no_head_is_said_with_the_reason(name: str) -> None:
    classifier = Classifier.open(WITHOUT_HEAD[name]())
    assert classifier.head is None
    assert classifier.features is None
    assert any("No head" in finding and "remain possible" in finding for finding in classifier.findings)
