"""An ONNX file, bytes or model in memory becomes one self-contained model of a recent opset."""

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper, helper, inliner, version_converter

from models.errors import ClassifierError

OPSET = 18
_IR_VERSION = 8  # the oldest that may hold opset 18
_LARGEST = 2**31 - 1  # protobuf cannot write a longer message


def load(source: str | Path | bytes | onnx.ModelProto) -> onnx.ModelProto:
    """The model with its external weights inside; the caller's own model object is left as it is."""
    if isinstance(source, onnx.ModelProto):
        model = onnx.ModelProto()
        model.CopyFrom(source)
        return _complete(model, "the model in memory", None)
    if isinstance(source, bytes):
        return _complete(_parse(source, "the given bytes"), "the given bytes", None)
    path = Path(source)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise ClassifierError(f"{path} {what}; give the path of an ONNX file.")
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise ClassifierError(f"{path} cannot be read ({fault.strerror}).") from fault
    return _complete(_parse(data, str(path)), str(path), path.parent)


def modernise(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int | None]:
    """The model at opset 18 or later, and the older opset it was converted from, if it was.

    Whether the conversion kept the meaning is for the caller to prove by running both.
    """
    version = default_opset(model)
    if version >= OPSET:
        return model, None
    try:
        converted = version_converter.convert_version(model, OPSET)
    except Exception as fault:  # the converter raises bare RuntimeError and its own kinds
        # the converter's text begins with a source file and an assertion, which help nobody
        reason = (str(fault).strip().splitlines() or [type(fault).__name__])[0].split("failed: ")[-1][:200]
        raise ClassifierError(
            f"The model is written for opset {version} and cannot be converted to opset {OPSET} ({reason}); "
            f"export it again with opset {OPSET} or later."
        ) from fault
    del converted.metadata_props[:]
    converted.metadata_props.extend(model.metadata_props)
    return converted, version


def default_opset(model: onnx.ModelProto) -> int:
    """The version of the default operator set."""
    return max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=OPSET)


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as fault:
        raise ClassifierError(f"No ONNX model can be read from {name}; give a file that an exporter wrote.") from fault
    return model


def _complete(model: onnx.ModelProto, name: str, folder: Path | None) -> onnx.ModelProto:
    if not model.graph.node or not model.graph.output:
        raise ClassifierError(f"No ONNX graph can be read from {name}; give a file that an exporter wrote.")
    _load_weights(model, name, folder)
    if model.functions:
        model = inliner.inline_local_functions(model)
    _tidy(model)
    return model


def _load_weights(model: onnx.ModelProto, name: str, folder: Path | None) -> None:
    external = [t for t in external_data_helper._get_all_tensors(model) if external_data_helper.uses_external_data(t)]
    _check_size(model, external)
    if not external:
        return
    if folder is None:
        raise ClassifierError(
            f"Weights of {name} lie in another file ({_location(external[0])}); give the path of the ONNX file "
            "instead, with that file beside it."
        )
    try:
        external_data_helper.load_external_data_for_model(model, str(folder))
    except Exception as fault:  # missing, too short, or outside the folder: onnx has a kind for each
        raise ClassifierError(
            f"The weights of {name} in {_location(external[0])} cannot be read; put the complete file beside the model."
        ) from fault
    for tensor in external:
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _check_size(model: onnx.ModelProto, external: list[onnx.TensorProto]) -> None:
    try:
        size = model.ByteSize()
    except Exception:  # protobuf refuses to count beyond its own limit
        size = _LARGEST + 1
    size += sum(_length(tensor) for tensor in external)
    if size > _LARGEST:
        raise ClassifierError(
            f"The model holds {size / 1e9:.1f} GB; a bundle's graph is one file of at most 2.1 GB, so export it in "
            "float16 or quantise its weights to int8."
        )


def _length(tensor: onnx.TensorProto) -> int:
    bits = 4 if tensor.data_type in (onnx.TensorProto.INT4, onnx.TensorProto.UINT4) else 0
    count = 1
    for size in tensor.dims:
        count *= size
    return count * bits // 8 if bits else count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _location(tensor: onnx.TensorProto) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "?")


def _tidy(model: onnx.ModelProto) -> None:
    """Undo habits of old and odd exporters: weights listed as inputs, an operator set imported twice or never."""
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in stored]
    if len(inputs) < len(model.graph.input):
        kept = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in inputs]
        del model.graph.input[:]
        model.graph.input.extend(kept)
    versions: dict[str, int] = {"": default_opset(model)}
    for entry in model.opset_import:
        if entry.domain not in ("", "ai.onnx"):
            versions[entry.domain] = max(entry.version, versions.get(entry.domain, 0))
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())
    model.ir_version = max(model.ir_version, _IR_VERSION)
