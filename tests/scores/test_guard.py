"""In the fused graph no row with a NaN or an infinity is finite, whatever the score makes of it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from models.classifier import Classifier
from models.fuse import fuse
from models.runtime import RuntimeOptions, Scorer
from models.scores import FitData, fit_score, registry

RNG = np.random.default_rng(0)
WEIGHTS = {
    "w0": RNG.normal(size=(12, 8)) / 3,
    "b0": RNG.normal(size=12),
    "w1": RNG.normal(size=(5, 12)),
    "b1": RNG.normal(size=5),
}


@pytest.fixture(scope="module")
def classifier():
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["h"]),
        helper.make_node("Gemm", ["h", "w1", "b1"], ["z"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 5])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in WEIGHTS.items()],
    )
    return Classifier.open(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10))


@pytest.fixture(scope="module")
def data(classifier):
    found = classifier.signals(RNG.normal(size=(300, 8)).astype(np.float32))
    labels = np.where(np.arange(300) % 4, found.logits.argmax(axis=1), 0)
    return FitData.of(found, labels, classifier.head)


@pytest.mark.parametrize("id", list(registry()))
def test_what_is_not_finite_is_flagged(id, classifier, data):
    fused = fuse(classifier, fit_score("msp", None, data), fit_score(id, None, data)).model
    onnx.checker.check_model(fused, full_check=True)
    x = np.repeat(RNG.normal(size=(1, 8)).astype(np.float32), 6, axis=0)
    x[1, 0], x[2, 3], x[3, 7], x[4, 5] = np.nan, np.inf, -np.inf, 1e38
    scored = Scorer(fused, RuntimeOptions(provider="cpu", threads=1)).score(x)
    assert scored.finite[[0, 5]].all()
    assert not scored.finite[[1, 2, 3]].any()
    assert not scored.finite[4] or np.isfinite([scored.s_id[4], scored.s_ood[4]]).all(), "overflow inside the model"
    assert scored.s_ood[0] == pytest.approx(scored.s_ood[5], rel=1e-12)
