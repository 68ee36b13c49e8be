"""Bundles from models as users have them, through the same door: open, fit, fuse, save, load, score."""

import warnings
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from support.exported import export_torch, magika_path, torch_modules
from support.small import dense_model

from models.build import Recipe, build
from models.bundle import Bundle

RNG = np.random.default_rng(0)


def check(model: Path, x: np.ndarray, tmp_path: Path, s_ood: str = "vim", y: np.ndarray | None = None) -> Bundle:
    """Build with `msp` and another score; the loaded bundle must give the model's own labels."""
    np.savez(tmp_path / "fit.npz", x=x, **({} if y is None else {"y": y}))
    bundle = build(model, tmp_path / "fit.npz", tmp_path / f"{model.stem}-bundle", Recipe(s_ood=s_ood))
    scored = Bundle.open(bundle.path).scorer().score(x, probabilities=True)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    outputs = session.run(None, {session.get_inputs()[0].name: x})
    given = next(value for value in outputs if isinstance(value, np.ndarray) and value.ndim == 2)
    top = np.sort(given, axis=1)[:, -2:]
    clear = top[:, 1] - top[:, 0] > 1e-4
    assert clear.mean() > 0.5
    np.testing.assert_array_equal(scored.label[clear], given.argmax(axis=1)[clear])
    assert scored.finite.all()
    assert len(np.unique(scored.s_ood)) > len(x) / 2
    return bundle


def test_torch_cnn_and_vit(tmp_path: Path) -> None:
    modules = torch_modules()
    x = RNG.normal(size=(80, 1, 28, 28)).astype(np.float32)
    for name in ("cnn", "cls"):
        export_torch(modules[name], tmp_path / f"{name}.onnx")
        check(tmp_path / f"{name}.onnx", x, tmp_path)


def test_scikit_learn_mlp(tmp_path: Path) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.neural_network import MLPClassifier

    x = RNG.normal(size=(300, 6)).astype(np.float32)
    names = np.array(["ant", "bee", "cow"])[x[:, :3].argmax(axis=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = MLPClassifier((12,), max_iter=80, random_state=0).fit(x, names)
    model = skl2onnx.to_onnx(estimator, x[:1], options={"zipmap": False})
    (tmp_path / "mlp.onnx").write_bytes(model.SerializeToString())
    bundle = check(tmp_path / "mlp.onnx", x, tmp_path, "mahalanobis", x[:, :3].argmax(axis=1))
    assert bundle.manifest.classes == ("ant", "bee", "cow")


def test_int8(tmp_path: Path) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    x = RNG.normal(size=(200, 8)).astype(np.float32)

    class Rows(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.rows = iter({"x": x[i : i + 20]} for i in range(0, 200, 20))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.rows, None)

    onnx.save(dense_model(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "int8.onnx", Rows(), quant_format=QuantFormat.QDQ)
    assert any(node.op_type == "QuantizeLinear" for node in onnx.load(tmp_path / "int8.onnx").graph.node)
    check(tmp_path / "int8.onnx", x, tmp_path)


def test_magika(tmp_path: Path) -> None:
    """A third-party model that takes int32 bytes; nobody here made it."""
    x = np.full((60, 2048), 256, np.int32)
    words = [b"def f(x):\n    return x\n", b"<html><body>hello</body></html>", b'{"a": [1, 2, 3]}', b"SELECT * FROM t;"]
    for i in range(60):
        text = np.frombuffer(words[i % 4] * (1 + i // 4), np.uint8)[:1024]
        x[i, : len(text)] = text
        x[i, 2048 - len(text) :] = text
    bundle = check(magika_path(), x, tmp_path, "energy")
    assert len(bundle.manifest.classes) == 214
