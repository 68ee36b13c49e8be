"""What the tests of opening classifiers share: the bare runtime as truth, and the sentences that come back."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support import zoo

from models.classifier import Classifier
from models.errors import ClassifierError


def run_bare(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: x}))


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def rows(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def dense() -> onnx.ModelProto:
    return zoo.WITH_HEAD["gemm"][0]()


def finding(classifier: Classifier, words: str) -> str:
    found = [sentence for sentence in classifier.findings if words in sentence]
    assert found, classifier.findings
    return found[0]


def refusal(source: object, **options: str) -> str:
    """The one sentence with which a model is refused."""
    with pytest.raises(ClassifierError) as caught:
        Classifier.open(source, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message
