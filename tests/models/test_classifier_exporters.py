"""Models as users have them: exported by scikit-learn's and torch's own tools, and one that nobody here made."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.exported import export_torch, magika_path, torch_modules
from support.opening import softmax

from models.classifier import Classifier

SPECIES = np.array(["cat", "dog", "eel"])


def head_deviation(classifier: Classifier, x: np.ndarray) -> float:
    signals = classifier.signals(x)
    assert classifier.head is not None, classifier.findings
    made = np.asarray(signals.features, np.float64) @ classifier.head.weight.T + classifier.head.bias
    return float(np.abs(made - signals.logits).max() / np.abs(signals.logits).max())


# scikit-learn


def table(classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(240, 6)).astype(np.float32)
    return x, (x[:, :3].argmax(1) if classes == 3 else (x[:, 0] + x[:, 1] ** 2 > 0.7).astype(np.int64))


def estimators() -> dict[str, tuple[Any, bool, int]]:
    """Estimator, whether a head must be found, and the number of classes."""
    pytest.importorskip("skl2onnx")
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def mlp() -> Any:
        return MLPClassifier((8,), max_iter=60, random_state=0)

    return {
        "logistic": (LogisticRegression(), True, 3),
        "logistic binary": (LogisticRegression(), True, 2),
        "logistic pipeline": (make_pipeline(StandardScaler(), LogisticRegression()), True, 3),
        "mlp": (mlp(), True, 3),
        "mlp binary": (mlp(), True, 2),
        "mlp pipeline": (make_pipeline(StandardScaler(), mlp()), True, 3),
        "mlp pipeline binary": (make_pipeline(StandardScaler(), mlp()), True, 2),
        "linear discriminant": (LinearDiscriminantAnalysis(), True, 3),
        "naive bayes": (GaussianNB(), False, 3),
        "forest": (RandomForestClassifier(5, random_state=0), False, 3),
        "boosting": (GradientBoostingClassifier(n_estimators=4, random_state=0), False, 3),
        "boosting binary": (GradientBoostingClassifier(n_estimators=4, random_state=0), False, 2),
        "one against the rest": (OneVsRestClassifier(LogisticRegression()), False, 3),
        "stochastic gradient": (SGDClassifier(loss="log_loss", random_state=0), False, 3),
        "calibrated": (CalibratedClassifierCV(LogisticRegression(), cv=2), False, 3),
    }


NAMES = [
    "logistic", "logistic binary", "logistic pipeline", "mlp", "mlp binary", "mlp pipeline", "mlp pipeline binary",
    "linear discriminant", "naive bayes", "forest", "boosting", "boosting binary", "one against the rest",
    "stochastic gradient", "calibrated",
]  # fmt: skip


@pytest.mark.parametrize("zipmap", [True, False], ids=["maps", "tensor"])
@pytest.mark.parametrize("name", NAMES)
def test_scikit_learn(name: str, zipmap: bool) -> None:
    estimator, has_head, classes = estimators()[name]
    from skl2onnx import to_onnx

    x, y = table(classes)
    labels = SPECIES[y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, labels)
        model = to_onnx(estimator, x[:1], options={id(estimator): {"zipmap": zipmap}})
    classifier = Classifier.open(model)
    signals = classifier.signals(x)
    assert classifier.classes == tuple(estimator.classes_)
    assert classifier.n_classes == classes
    np.testing.assert_allclose(softmax(signals.logits.astype(np.float64)), estimator.predict_proba(x), atol=2e-5)
    predicted = np.asarray(classifier.classes)[signals.logits.argmax(1)]
    assert (predicted == estimator.predict(x)).mean() > 0.995  # float32 against float64 at a tie
    assert (classifier.head is not None) == has_head
    if has_head:
        assert head_deviation(classifier, x) < 1e-5
    assert not any("ZipMap" in node.op_type for node in classifier.model.graph.node)


def test_scores_without_probabilities_keep_their_linear_head() -> None:
    pytest.importorskip("skl2onnx")
    from skl2onnx import to_onnx
    from sklearn.svm import LinearSVC

    x, y = table()
    estimator = LinearSVC().fit(x, y)
    classifier = Classifier.open(to_onnx(estimator, x[:1]))
    assert classifier.head is not None
    np.testing.assert_allclose(classifier.head.weight, estimator.coef_, rtol=1e-6)
    np.testing.assert_allclose(classifier.signals(x).logits, estimator.decision_function(x), atol=1e-5)


# torch


def test_torch(tmp_path: Path) -> None:
    """One test for all, so that parallel workers do not each pay for torch's exporter."""
    modules = torch_modules()
    import torch

    x = np.random.default_rng(1).normal(size=(9, 1, 28, 28)).astype(np.float32)
    for name, module in modules.items():
        path = tmp_path / f"{name}.onnx"
        export_torch(module, path)
        with torch.no_grad():
            truth = module(torch.from_numpy(x)).numpy()
        classifier = Classifier.open(path)
        logits = classifier.signals(x).logits
        np.testing.assert_allclose(softmax(logits) if name == "cnn" else logits, truth, rtol=1e-3, atol=1e-5)
        assert classifier.head is not None, classifier.findings
        linear = module[9] if name == "cnn" else module.head
        np.testing.assert_allclose(classifier.head.weight, linear.weight.detach().numpy(), rtol=1e-6)
        np.testing.assert_allclose(classifier.head.bias, linear.bias.detach().numpy(), rtol=1e-6)
        assert head_deviation(classifier, x) < 1e-5


# a model that nobody here made


def test_magika() -> None:
    """Bytes as int32, opset 15, a softmax written out in elementary nodes, made with JAX."""
    path = magika_path()
    classifier = Classifier.open(path)
    assert classifier.input_shape == (2048,)
    assert classifier.input_dtype == np.int32
    assert classifier.fixed_batch is None
    assert classifier.n_classes == 214
    x = np.random.default_rng(2).integers(0, 256, (6, 2048)).astype(np.int32)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    truth = session.run(None, {"bytes": x})[0]
    signals = classifier.signals(x)
    np.testing.assert_allclose(softmax(signals.logits), truth, atol=1e-5)
    assert head_deviation(classifier, x) < 1e-5
    assert classifier.head is not None
    assert classifier.head.weight.shape == (214, 512)
    onnx.checker.check_model(classifier.model)
