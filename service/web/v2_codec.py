"""The tensors of the Open Inference Protocol V2: JSON or the binary tensor extension, in and out."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from service.problems import Problem, invalid_input, malformed
from service.web.arrays import Spec, check_count, narrowed, not_a_number, numbers_only
from service.web.router import parse_json

DATATYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()} | {np.dtype(np.bool_): "BOOL"}

DEFAULT_OUTPUTS = ("label", "s_id", "s_ood", "accept")
OUTPUTS = (*DEFAULT_OUTPUTS, "reason", "probabilities")

_SHORT = 2048
_REQUEST_KEYS = {"id", "parameters", "inputs", "outputs"}
_INPUT_KEYS = {"name", "shape", "datatype", "parameters", "data"}
_OUTPUT_KEYS = {"name", "parameters"}


class Wanted(NamedTuple):
    """An output that was asked for, and how."""

    name: str
    binary: bool


@dataclass(frozen=True)
class Header:
    """The JSON part of an inference request, checked; `data` is None where the tensor follows in binary."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data: list[Any] | None
    binary_size: int | None
    id: str | None
    outputs: tuple[Wanted, ...]
    timeout: float | None


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The protocol's name of a numpy type."""
    return _NAMES.get(dtype, "BYTES")


def parse_infer(
    body: bytes, json_size: int | None, spec: Spec, input_name: str, limit: int
) -> tuple[Header, NDArray[Any]]:
    """The request's JSON part and its tensor, both checked."""
    size = len(body) if json_size is None else json_size
    if size > len(body):
        raise malformed(f"Inference-Header-Content-Length is {size:,}, but only {len(body):,} bytes arrived.")
    read = _repeated_header if size < len(body) and size <= _SHORT else _header
    header = read(body[:size], input_name, datatype_of(spec.np_dtype))
    return header, _tensor(header, body[size:], spec, limit)


def _header(text: bytes, input_name: str, datatype: str) -> Header:
    document = _object(parse_json(text), "The request", _REQUEST_KEYS)
    inputs = document.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1:
        raise invalid_input(f'"inputs" is a list with exactly one tensor, {input_name!r}.')
    tensor = _object(inputs[0], "The input", _INPUT_KEYS)
    if tensor.get("name") != input_name:
        raise invalid_input(f"The model's input is called {input_name!r}; {str(tensor.get('name'))[:60]!r} arrived.")
    parameters = _parameters(document)
    data, size = _source(tensor)
    dtype = _dtype(tensor.get("datatype"), datatype)
    if data is not None:
        _check_numbers(text, document, tensor)
    return Header(
        _shape(tensor.get("shape")),
        dtype,
        data,
        size,
        _id(document.get("id")),
        _wanted(document.get("outputs"), parameters.get("binary_data_output") is True),
        _timeout(parameters.get("timeout")),
    )


# Before binary tensors the JSON is short and, from one client, the same every time.
_repeated_header = lru_cache(maxsize=256)(_header)


def render_infer(
    header: dict[str, Any], columns: Mapping[str, NDArray[Any]], wanted: tuple[Wanted, ...]
) -> tuple[bytes, int | None]:
    """The response's body, and the length of its JSON part where binary tensors follow it."""
    outputs: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for name, binary in wanted:
        column = columns[name]
        output: dict[str, Any] = {"name": name, "datatype": datatype_of(column.dtype), "shape": list(column.shape)}
        if binary:
            blobs.append(_blob(column))
            output["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            output["data"] = column.ravel().tolist()
        outputs.append(output)
    document = orjson.dumps({**header, "outputs": outputs})
    if not blobs:
        return document, None
    return b"".join((document, *blobs)), len(document)


def _tensor(header: Header, binary: bytes, spec: Spec, limit: int) -> NDArray[Any]:
    if header.data is None:
        array = _from_binary(binary, header.binary_size, header.dtype)
    elif binary:
        raise malformed("Binary data follow the JSON, but the input has no parameter binary_data_size.")
    else:
        array = _from_json(header.data, header.dtype)
    shape = header.shape
    if array.size != prod(shape):
        raise invalid_input(f"The shape {list(shape)} holds {prod(shape):,} values, but {array.size:,} arrived.")
    if shape:
        check_count(shape[0], limit)
    return spec.validate_batch(narrowed(array.reshape(shape), spec))


def _source(tensor: dict[str, Any]) -> tuple[list[Any] | None, int | None]:
    """Where the values are: a list in the JSON, or so many bytes behind it."""
    size = _parameters(tensor).get("binary_data_size")
    if size is None:
        data = tensor.get("data")
        if not isinstance(data, list):
            raise invalid_input('The input has neither a list "data" nor the parameter binary_data_size.')
        return data, None
    if "data" in tensor:
        raise invalid_input('The input has both "data" and the parameter binary_data_size; send one.')
    if type(size) is not int:
        raise malformed(f"binary_data_size is a number of bytes; {str(size)[:20]!r} arrived.")
    return None, size


def _check_numbers(text: bytes, document: dict[str, Any], tensor: dict[str, Any]) -> None:
    if numbers_only(text, document | {"inputs": [tensor | {"data": None}]}):
        return
    index = not_a_number(tensor["data"])
    if index is not None:
        raise invalid_input(
            f'"data" holds values that are no {tensor.get("datatype")}, the first in its entry {index}.'
        )


def _dtype(datatype: Any, wanted: str) -> np.dtype[Any]:
    dtype = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise invalid_input(f"The datatype {str(datatype)[:20]!r} is not supported; the model takes {wanted}.")
    return dtype


def _from_json(data: list[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    try:
        array = np.array(data).ravel()
    except (ValueError, OverflowError):
        raise invalid_input('"data" is neither a flat list nor a rectangular one.') from None
    allowed = "iu" if dtype.kind in "iu" else "fiu"
    if array.dtype.kind not in allowed and array.size:
        raise invalid_input(f'"data" holds values that are no {datatype_of(dtype)}.')
    if dtype.kind == "f":
        return array
    limits = np.iinfo(dtype)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise invalid_input(f'"data" holds a value outside {limits.min}…{limits.max}, the range of {dtype}.')
    return array.astype(dtype)


def _from_binary(binary: bytes, size: int | None, dtype: np.dtype[Any]) -> NDArray[Any]:
    if size != len(binary):
        raise malformed(f"binary_data_size is {size}, but {len(binary):,} bytes follow the JSON.")
    if size % dtype.itemsize:
        raise malformed(f"{size:,} bytes are no whole number of {datatype_of(dtype)} values.")
    return np.frombuffer(binary, dtype)


def _shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list) or not all(type(size) is int and 0 <= size < 2**40 for size in shape):
        raise invalid_input('The "shape" of the input is a list of sizes, the number of instances first.')
    return tuple(shape)


def _id(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > 256):
        raise invalid_input('"id" is a string of at most 256 characters.')
    return value


def _timeout(value: Any) -> float | None:
    """The protocol's `timeout` parameter, in microseconds; 0 means none."""
    if value is None or value == 0:
        return None
    if type(value) is not int or value < 0:
        raise invalid_input('The parameter "timeout" is a whole number of microseconds.')
    return value / 1e6


def _wanted(outputs: Any, all_binary: bool) -> tuple[Wanted, ...]:
    if outputs is None or outputs == []:
        return tuple(Wanted(name, all_binary) for name in DEFAULT_OUTPUTS)
    if not isinstance(outputs, list):
        raise invalid_input(f'"outputs" is a list; the model has {", ".join(OUTPUTS)}.')
    wanted = [_one_wanted(_object(output, "An output", _OUTPUT_KEYS), all_binary) for output in outputs]
    if len({item.name for item in wanted}) != len(wanted):
        raise invalid_input("An output is asked for twice; ask once.")
    return tuple(wanted)


def _one_wanted(output: dict[str, Any], all_binary: bool) -> Wanted:
    name = output.get("name")
    if name not in OUTPUTS:
        raise invalid_input(f"There is no output {str(name)[:60]!r}; the model has {', '.join(OUTPUTS)}.")
    binary = _parameters(output).get("binary_data")
    return Wanted(name, all_binary if binary is None else binary is True)


def _parameters(document: dict[str, Any]) -> dict[str, Any]:
    parameters = document.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise invalid_input('"parameters" is an object.')
    return parameters


def _object(value: Any, what: str, allowed: set[str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise invalid_input(f"{what} is not a JSON object.")
    if not value.keys() <= allowed:
        raise _unknown(what, sorted(value.keys() - allowed)[0], allowed)
    return value


def _unknown(what: str, key: str, allowed: set[str]) -> Problem:
    return invalid_input(f"{what} has an unknown key {key[:40]!r}; known are {', '.join(sorted(allowed))}.")


def _blob(column: NDArray[Any]) -> bytes:
    if column.dtype.kind != "O":
        return np.ascontiguousarray(column).tobytes()
    texts = [str(item).encode() for item in column.ravel()]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)
