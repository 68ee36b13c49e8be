"""Opening classifiers: every opset, weights in other files, and files that are no models."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support import zoo
from support.opening import dense, refusal, rows, run_bare, softmax
from support.zoo import WIDTH, Net

from models.classifier import Classifier
from models.opening import loading

# opsets


@pytest.mark.parametrize("opset", range(9, 24))
def test_every_opset_opens_with_its_head(opset: int) -> None:
    model = zoo.every_opset(opset)
    classifier = Classifier.open(model)
    x = rows(6, 1, 9, 9)
    signals = classifier.signals(x)
    np.testing.assert_allclose(softmax(signals.logits), run_bare(model, x)[0], atol=1e-6)
    assert classifier.head is not None
    made = np.asarray(signals.features) @ classifier.head.weight.T + classifier.head.bias
    np.testing.assert_allclose(made, signals.logits, rtol=1e-4, atol=1e-5)
    version = max(entry.version for entry in classifier.model.opset_import if entry.domain == "")
    assert version == max(opset, 18)
    assert any("converted" in sentence for sentence in classifier.findings) == (opset < 18)


def test_softmax_of_opset_12_spans_all_trailing_axes() -> None:
    """Before opset 13 Softmax flattens to two axes; the meaning must survive the conversion."""
    net = Net(WIDTH, opset=12)
    z = net.add("Reshape", net.head(net.hidden(), 6), np.array([-1, 6, 1], np.int64))
    model = net.model(net.add("Softmax", z, axis=1))
    x = rows(5, WIDTH)
    np.testing.assert_allclose(
        softmax(Classifier.open(model).signals(x).logits), run_bare(model, x)[0][:, :, 0], atol=1e-6
    )


def test_an_operator_that_cannot_be_converted_is_refused_with_the_way_out() -> None:
    net = Net(WIDTH, opset=9)
    retired = net.add("Affine", "x", alpha=1.0, beta=0.0)
    message = refusal(net.model(net.head(net.hidden(retired))))
    assert "opset 9 and cannot be converted" in message
    assert "Affine" in message
    assert "export it again with opset 18" in message


def test_a_failed_conversion_names_the_opset_to_export(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        raise RuntimeError("no adapter for Pad\nand a stack trace")

    monkeypatch.setattr(loading.version_converter, "convert_version", fail)
    message = refusal(zoo.every_opset(11))
    assert "opset 11" in message
    assert "no adapter for Pad" in message
    assert "export it again with opset 18" in message


def test_a_conversion_that_changes_the_outputs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: onnx.ModelProto, version: int) -> onnx.ModelProto:
        converted = convert(model, version)
        first = converted.graph.initializer[0]
        first.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(first) * np.float32(1.5), first.name))
        return converted

    convert = loading.version_converter.convert_version
    monkeypatch.setattr(loading.version_converter, "convert_version", spoil)
    assert "it gives other outputs" in refusal(zoo.every_opset(11))


def test_an_operator_set_imported_twice_or_never() -> None:
    model = dense()
    model.opset_import.append(helper.make_opsetid("", 18))
    assert Classifier.open(model).head is not None
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert Classifier.open(model).head is not None


# sources


def test_a_path_bytes_and_a_model_open_alike(tmp_path: Path) -> None:
    model = dense()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    before = model.SerializeToString()
    x = rows(4, WIDTH)
    truth = run_bare(model, x)[0]
    for source in (path, str(path), path.read_bytes(), model):
        np.testing.assert_allclose(Classifier.open(source).signals(x).logits, truth, rtol=1e-5, atol=1e-6)
    assert model.SerializeToString() == before


def external(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(dense(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_weights_in_another_file_come_inside(tmp_path: Path) -> None:
    path = external(tmp_path)
    classifier = Classifier.open(path)
    (tmp_path / "weights.bin").unlink()
    x = rows(4, WIDTH)
    np.testing.assert_allclose(classifier.signals(x).logits, run_bare(dense(), x)[0], rtol=1e-5, atol=1e-6)
    assert all(tensor.data_location == TensorProto.DEFAULT for tensor in classifier.model.graph.initializer)


def test_missing_or_short_weights_are_named(tmp_path: Path) -> None:
    path = external(tmp_path)
    data = path.read_bytes()
    assert "give the path of the ONNX file instead" in refusal(data)
    whole = (tmp_path / "weights.bin").read_bytes()
    (tmp_path / "weights.bin").write_bytes(whole[:10])
    assert "weights.bin" in refusal(path)
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in refusal(path)


def test_a_model_beyond_two_gigabytes_says_what_to_do(tmp_path: Path) -> None:
    model = dense()
    big = model.graph.initializer[0]
    big.ClearField("raw_data")
    del big.dims[:]
    big.dims.extend([30_000, 30_000])
    big.data_location = TensorProto.EXTERNAL
    onnx.external_data_helper.set_external_data(model.graph.initializer[1], "weights.bin")
    entry = big.external_data.add()
    entry.key, entry.value = "location", "weights.bin"
    path = tmp_path / "big.onnx"
    path.write_bytes(model.SerializeToString())
    message = refusal(path)
    assert "3.6 GB" in message
    assert "float16" in message


@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\x00\xff" * 40])
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    message = refusal(path)
    assert str(path) in message
    assert "give a file that" in message


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nowhere.onnx")
    assert "is a directory" in refusal(tmp_path)


def test_an_unknown_operator() -> None:
    net = Net(WIDTH)
    message = refusal(net.model(net.head(net.add("Wibble", net.hidden()))))
    assert "Wibble" in message
