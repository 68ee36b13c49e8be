"""The fused graph says what the classifier and the scores say apart, and never calls the infinite finite."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.small import dense_model, pixel_model

from models.build import Recipe, build
from models.classifier import Classifier
from models.errors import BundleError, ClassifierError
from models.fuse import accept_pixels, bake, fuse
from models.inputs import ImageInput
from models.runtime import RuntimeOptions, Scorer, Session
from models.scores import FitData, fit_score

X = np.random.default_rng(3).normal(size=(200, 8)).astype(np.float32)


def fitted(classifier: Classifier, x: np.ndarray, *specs: str) -> list:
    signals = classifier.signals(x)
    labels = signals.logits.argmax(axis=1)
    return [fit_score(spec, None, FitData.of(signals, labels, classifier.head)) for spec in specs]


@pytest.mark.parametrize(
    ("s_id", "s_ood"), [("msp", "energy"), ("msp", "msp"), ("entropy", "vim"), ("msp+temperature=2", "knn:k=5")]
)
@pytest.mark.parametrize("optimization", ["disable", "all"])
def test_fused_equals_unfused(s_id: str, s_ood: str, optimization: str) -> None:
    classifier = Classifier.open(dense_model())
    scores = fitted(classifier, X, s_id, s_ood)
    options = RuntimeOptions(optimization=optimization)  # type: ignore[arg-type]
    got = Scorer(fuse(classifier, *scores).model, options).score(X, probabilities=True)
    signals = classifier.signals(X)
    np.testing.assert_array_equal(got.label, signals.logits.argmax(axis=1))
    np.testing.assert_allclose(got.s_id, scores[0].compute(signals), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(got.s_ood, scores[1].compute(signals), rtol=2e-5, atol=1e-5)
    assert got.finite.all()
    assert got.probabilities is not None
    np.testing.assert_allclose(got.probabilities.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(got.probabilities.argmax(axis=1), got.label)


def test_the_fused_graph_is_valid_onnx() -> None:
    classifier = Classifier.open(dense_model())
    model = fuse(classifier, *fitted(classifier, X, "msp", "vim")).model
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", range(8))
def test_a_bad_input_value_is_not_finite_wherever_it_stands(bad: float, column: int) -> None:
    """ReLU and maxima may swallow a NaN; the guard looks at the input itself."""
    classifier = Classifier.open(dense_model())
    scorer = Scorer(fuse(classifier, *fitted(classifier, X, "msp", "vim")).model)
    x = X[:5].copy()
    x[3, column] = bad
    assert scorer.score(x).finite.tolist() == [True, True, True, False, True]


def test_logits_that_overflow_are_not_finite() -> None:
    classifier = Classifier.open(dense_model())
    scorer = Scorer(fuse(classifier, *fitted(classifier, X, "msp", "energy")).model)
    x = X[:3].copy()
    x[1] = 3e38
    assert scorer.score(x).finite.tolist() == [True, False, True]


def test_a_large_image_input_is_guarded_too() -> None:
    classifier = Classifier.open(pixel_model(size=40))
    x = np.random.default_rng(0).normal(size=(6, 3, 40, 40)).astype(np.float32)
    scorer = Scorer(fuse(classifier, *fitted(classifier, np.tile(x, (20, 1, 1, 1)), "msp", "energy")).model)
    x[2, 1, 39, 39] = np.nan
    assert scorer.score(x).finite.tolist() == [True, True, False, True, True, True]


def test_names_of_the_model_that_clash_with_ours_are_moved() -> None:
    model = dense_model()
    for value, name in (("z", "label"), ("h", "s_id"), ("a", "finite")):
        for node in model.graph.node:
            node.input[:] = [name if i == value else i for i in node.input]
            node.output[:] = [name if o == value else o for o in node.output]
    model.graph.output[0].name = "label"
    classifier = Classifier.open(model)
    got = Scorer(fuse(classifier, *fitted(classifier, X, "msp", "vim")).model).score(X)
    np.testing.assert_array_equal(got.label, Session(dense_model()).run(X, ["z"])[0].argmax(axis=1))


def test_pixels_are_normalised_inside_the_graph() -> None:
    image = ImageInput(height=8, width=8, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), np.uint8)
    by_hand = ((pixels / 255 - np.array(image.mean)) / np.array(image.std)).transpose(0, 3, 1, 2).astype(np.float32)
    classifier = Classifier.open(pixel_model())
    got = accept_pixels(classifier, image).signals(pixels)
    want = classifier.signals(by_hand)
    np.testing.assert_allclose(got.logits, want.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"height": 9}, {"channels": 1}, {"layout": "NHWC"}])
def test_an_image_that_does_not_fit_the_model_is_refused(wrong: dict[str, object]) -> None:
    spec = ImageInput(**{"height": 8, "width": 8, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ClassifierError, match=r"\[3, 8, 8\]"):
        accept_pixels(Classifier.open(pixel_model()), spec)


@pytest.mark.parametrize("per_class", [False, True])
def test_a_baked_graph_decides_as_the_thresholds_do(per_class: bool) -> None:
    classifier = Classifier.open(dense_model())
    model = fuse(classifier, *fitted(classifier, X, "msp", "energy")).model
    scored = Scorer(model).score(X)
    tau_id, tau_ood = float(np.median(scored.s_id)), float(np.quantile(scored.s_ood, 0.3))
    ids, oods = ([tau_id + k / 9 for k in range(5)], [tau_ood - k / 7 for k in range(5)])
    baked = bake(model, ids, oods) if per_class else bake(model, tau_id, tau_ood)
    onnx.checker.check_model(baked, full_check=True)
    session = ort.InferenceSession(baked.SerializeToString(), providers=["CPUExecutionProvider"])
    x = X.copy()
    x[0, 0] = np.nan
    accept = session.run(["accept"], {session.get_inputs()[0].name: x})[0]
    expected = [
        i > 0 and s >= (ids[k] if per_class else tau_id) and o >= (oods[k] if per_class else tau_ood)
        for i, (k, s, o) in enumerate(zip(scored.label, scored.s_id, scored.s_ood, strict=True))
    ]
    assert accept.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_a_fixed_batch_model_becomes_a_bundle(tmp_path: Path) -> None:
    model = dense_model(batch=4)
    shape = helper.make_node("Reshape", ["z0", "four_five"], ["z"])
    model.graph.node[-1].output[0] = "z0"
    model.graph.node.append(shape)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([4, 5]), "four_five"))
    onnx.save(model, tmp_path / "fixed.onnx")
    np.savez(tmp_path / "fit.npz", x=X, y=np.arange(len(X)) % 5)
    bundle = build(tmp_path / "fixed.onnx", tmp_path / "fit.npz", tmp_path / "b", Recipe(s_ood="energy"))
    got = bundle.scorer().score(X[:7])
    np.testing.assert_array_equal(got.label, Session(dense_model()).run(X[:7], ["z"])[0].argmax(axis=1))


def test_scores_that_need_no_data_build_without_any(tmp_path: Path) -> None:
    onnx.save(dense_model(), tmp_path / "m.onnx")
    bundle = build(tmp_path / "m.onnx", None, tmp_path / "b", Recipe(s_id="msp", s_ood="max_logit"))
    assert bundle.manifest.provenance["fit"] is None
    assert bundle.scorer().score(X).finite.all()


@pytest.mark.parametrize(("classes", "words"), [(["a"], "1 class names"), (list("abcda"), "'a' is given twice")])
def test_class_names_must_fit(tmp_path: Path, classes: list[str], words: str) -> None:
    onnx.save(dense_model(), tmp_path / "m.onnx")
    with pytest.raises(BundleError, match=words):
        build(tmp_path / "m.onnx", None, tmp_path / "b", Recipe(s_ood="energy", classes=classes))
    assert not (tmp_path / "b").exists()


def test_outputs_are_float64_so_that_thresholds_are_exact() -> None:
    classifier = Classifier.open(dense_model())
    model = fuse(classifier, *fitted(classifier, X, "msp", "knn:k=3")).model
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.output}
    assert kinds["s_id"] == kinds["s_ood"] == TensorProto.DOUBLE
