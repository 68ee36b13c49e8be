"""Labels as class indices, whatever they came as."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.errors import DataError

OOD = -1
"""The label of an item that belongs to no class of the model."""
UNLABELLED = -2
"""The label of a row that has none in a source that has labels."""


@dataclass(frozen=True)
class Labels:
    """Turns integers and class names into indices.

    A name that is no class of the model is out of distribution by definition. A number is taken more strictly:
    only −1 says OOD, and one that is too large is an error, because it is most often a count from 1.
    """

    classes: tuple[str, ...] | None = None

    def encode(self, values: pa.Array) -> tuple[NDArray[np.int64], pa.Array | None]:
        """Indices, and the labels as text where they came as text."""
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if _is_text(values.type):
            return self._from_text(values), values.cast(pa.string())
        if pa.types.is_null(values.type):
            return np.full(len(values), UNLABELLED, np.int64), None
        return self._from_numbers(values), None

    def _from_text(self, values: pa.Array) -> NDArray[np.int64]:
        encoded = values.dictionary_encode()
        index = np.array([self._index(name) for name in encoded.dictionary.to_pylist()] + [UNLABELLED], np.int64)
        codes = pc.fill_null(encoded.indices, len(index) - 1).to_numpy(zero_copy_only=False)
        taken: NDArray[np.int64] = index[codes]
        return taken

    def _index(self, name: str) -> int:
        text = name.strip()
        if text == "":
            return UNLABELLED
        if self.classes is not None and text in self.classes:
            return self.classes.index(text)
        if text.removeprefix("-").isdecimal():
            return self._number(int(text))
        if self.classes is None:
            raise DataError(f"The label {name!r} is text, but no class names are known; give integers instead.")
        return OOD

    def _from_numbers(self, values: pa.Array) -> NDArray[np.int64]:
        raw = values.to_numpy(zero_copy_only=False)
        if raw.dtype.kind == "b":
            raw = raw.astype(np.int64)
        if raw.dtype.kind not in "iuf":
            raise DataError(f"Labels of type {values.type} arrived; integers or class names are allowed.")
        missing = np.isnan(raw) if raw.dtype.kind == "f" else np.zeros(len(raw), bool)
        y = np.where(missing, 0, raw).astype(np.int64)
        wrong = np.flatnonzero(~missing & (y != raw))
        if len(wrong):
            raise DataError(f"The label {raw[wrong[0]]} arrived; integers or class names are allowed.")
        for value in (int(y.max(initial=0)), int(y.min(initial=0))):
            self._number(value)
        return np.where(missing, UNLABELLED, y)

    def _number(self, value: int) -> int:
        if value < OOD or (self.classes is not None and value >= len(self.classes)):
            top = "" if self.classes is None else f" to {len(self.classes) - 1}"
            raise DataError(f"The label {value} arrived; classes count from 0{top}, and −1 means out of distribution.")
        return value


def text_column(values: Any) -> pa.Array:
    """Any column as strings, for ids and groups."""
    if isinstance(values, np.ndarray):
        values = pa.array(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_fixed_size_binary(values.type):  # keys such as a UUID: text of a fixed length for each
        return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())
    if _is_bytes(values.type):
        texts = (None if v is None else v.decode("utf-8", "backslashreplace") for v in values.to_pylist())
        return pa.array(texts, pa.string())
    return values if values.type == pa.string() else values.cast(pa.string())


def can_be_text(kind: pa.DataType) -> bool:
    """Whether `text_column` takes a column of this type."""
    try:
        text_column(pa.array([], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind))
    except pa.ArrowException:
        return False
    return True


def row_numbers(start: int, n: int) -> pa.Array:
    """The ids of rows that bring none."""
    return pa.array(np.arange(start, start + n)).cast(pa.string())


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
