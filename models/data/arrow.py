"""Arrow columns as inputs: tensors, (nested) lists of numbers, encoded images, or paths."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from numpy.typing import NDArray

from models.data import files, items
from models.data.model import Batch, Fault, Rows, Spec
from models.errors import InputError

_NULL = Fault("unreadable", "The row has no input (null).")


def input_kind(kind: pa.DataType) -> str | None:
    """What a column of this type can be read as: numbers, bytes, paths, or nothing."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if _is_list(kind):
        inner = kind.value_type
        while _is_list(inner):
            inner = inner.value_type
        return "numbers" if pt.is_integer(inner) or pt.is_floating(inner) or pt.is_boolean(inner) else None
    if pt.is_struct(kind) and kind.get_field_index("bytes") >= 0:  # the layout of Hugging Face image columns
        return "struct"
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind):
        return "bytes"
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return "paths"
    return None


def to_batch(spec: Spec, rows: Rows, column: pa.Array, folder: str) -> Batch:
    """The inputs in a column; `folder` is where relative paths start."""
    tensor_shape = tuple(column.type.shape) if isinstance(column.type, pa.FixedShapeTensorType) else None
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = input_kind(column.type)
    if kind == "numbers":
        return _numbers(spec, rows, column, tensor_shape)
    load = _from_struct if kind == "struct" else _from_bytes if kind == "bytes" else _from_path
    return items.from_each(spec, rows, load(spec, column, folder))


def _numbers(spec: Spec, rows: Rows, column: pa.Array, tensor_shape: tuple[int, ...] | None) -> Batch:
    valid = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
    missing = {int(i): _NULL for i in set(range(len(column))) - set(valid.tolist())} if len(valid) < len(column) else {}
    present = column if not missing else column.drop_null()
    dense = _dense(present)
    if dense is not None and tensor_shape is not None:
        dense = dense.reshape(len(dense), *tensor_shape)
    if dense is not None and _fits(spec, dense):
        batch = items.from_array(spec, rows, dense, valid)
    else:
        batch = items.from_each(spec, rows, _ragged(column))
    return Batch(rows, batch.items, batch.faults | missing) if missing else batch


def _fits(spec: Spec, dense: NDArray[Any]) -> bool:
    shape = items.fit_shape(spec, dense).shape[1:]
    want = spec.item_shape
    return len(shape) == len(want) and all(w in (None, g) for w, g in zip(want, shape, strict=True))


def _dense(column: pa.Array) -> NDArray[Any] | None:
    """Lists of equal lengths as one array without a copy where possible; None when they are ragged."""
    if not _is_list(column.type):
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values
    if column.null_count:
        return None
    n = len(column)
    if pt.is_fixed_size_list(column.type):
        length = column.type.list_size
    else:
        lengths = np.diff(column.offsets.to_numpy())
        if n and (lengths != lengths[0]).any():
            return None
        length = int(lengths[0]) if n else 0
    inner = _dense(column.flatten())
    return None if inner is None else inner.reshape(n, length, *inner.shape[1:])


def _ragged(column: pa.Array) -> Callable[[int], NDArray[Any]]:
    def load(i: int) -> NDArray[Any]:
        item = column[i]
        if not item.is_valid:
            raise InputError(_NULL.message)
        value = _dense(item.values) if _is_list(item.type) else None
        if value is None:
            raise InputError("The row's lists have different lengths or hold nulls; an item is a full array.")
        return value

    return load


def _from_bytes(spec: Spec, column: pa.Array, folder: str) -> Callable[[int], NDArray[Any]]:
    def load(i: int) -> NDArray[Any]:
        value = column[i]
        if not value.is_valid:
            raise InputError(_NULL.message)
        return items.decode_item(spec, value.as_py())

    return load


def _from_path(spec: Spec, column: pa.Array, folder: str) -> Callable[[int], NDArray[Any]]:
    def load(i: int) -> NDArray[Any]:
        value = column[i].as_py()
        if not value:
            raise InputError(_NULL.message)
        return items.decode_item(spec, files.read_bytes(files.resolve(value, folder)))

    return load


def _from_struct(spec: Spec, column: pa.Array, folder: str) -> Callable[[int], NDArray[Any]]:
    data = pc.struct_field(column, "bytes")
    paths = pc.struct_field(column, "path") if column.type.get_field_index("path") >= 0 else None
    from_bytes = _from_bytes(spec, data, folder)

    def load(i: int) -> NDArray[Any]:
        if not data[i].is_valid and paths is not None and paths[i].is_valid:
            return _from_path(spec, paths, folder)(i)
        return from_bytes(i)

    return load


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))
