"""Bytes of a caller become an array the graph takes; everything that does not fit is refused by index and in words."""

import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.inputs import ImageInput, TensorInput
from service.problems import Problem, invalid_input, malformed

Spec = TensorInput | ImageInput

_NPY_MAGIC = b"\x93NUMPY"
_NPY_HEADER_LIMIT = 10_000
_NPY_READERS: dict[int, Callable[[Any], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    1: np.lib.format.read_array_header_1_0,
    2: np.lib.format.read_array_header_2_0,
}


def check_count(n: int, limit: int) -> None:
    """A request holds at least one instance and at most `limit`."""
    if n == 0:
        raise invalid_input("The request holds no instance; send at least one.")
    if n > limit:
        raise invalid_input(f"The request holds {n:,} instances; at most {limit:,} are allowed, so split it.")


def numbers_only(text: bytes, around: Any) -> bool:
    """Whether a JSON text has no string, true or false but those in `around`, the document without its numbers.

    numpy gives every entry of an array the room of its longest string, so a short body could ask for gigabytes, and
    it takes true for 1. Counting marks in the text costs next to nothing; looking at every number would not. An
    escaped quote or a repeated key leads to a false suspicion, never to a false trust.
    """
    strings, truths = _marks(around)
    return text.count(b'"') == 2 * strings and text.count(b"true") + text.count(b"false") == truths


def _marks(document: Any) -> tuple[int, int]:
    """Strings (keys included) and truth values in a document."""
    strings = truths = 0
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            strings += 1
        elif isinstance(value, bool):
            truths += 1
        elif isinstance(value, dict):
            strings += len(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return strings, truths


def not_a_number(values: Sequence[Any]) -> int | None:
    """The first entry of a list that holds, however deep, something other than numbers and lists."""
    for index, entry in enumerate(values):
        waiting = [entry]
        while waiting:
            value = waiting.pop()
            if isinstance(value, list):
                waiting += value
            elif type(value) not in (int, float):
                return index
    return None


def from_lists(instances: Sequence[Any], spec: Spec, *, trusted: bool = False) -> NDArray[Any]:
    """Nested JSON lists as a validated batch; `trusted` ones are known to hold numbers only."""
    if not trusted and (index := not_a_number(instances)) is not None:
        raise _misfit(index, "holds something other than numbers", spec)
    try:
        array = np.array(instances)
    except (ValueError, OverflowError):
        raise _blame(instances, spec) from None
    if array.dtype.kind not in "fiu":
        raise _blame(instances, spec)
    return spec.validate_batch(narrowed(array, spec))


def narrowed(array: NDArray[Any], spec: Spec) -> NDArray[Any]:
    """JSON's integers have no width: those within the model's integer range become its type."""
    want = spec.np_dtype
    if want.kind not in "iu" or array.dtype.kind not in "iu" or array.dtype == want:
        return array
    limits = np.iinfo(want)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        index = int(np.argwhere(outside)[0][0])
        raise invalid_input(
            f"Item {index} holds a value outside {limits.min}…{limits.max}, the range of {want}.", index=index
        )
    return array.astype(want)


def from_npy(body: bytes, spec: Spec, limit: int) -> NDArray[Any]:
    """A `.npy` body as a validated batch; nothing in it is ever executed or unpickled."""
    if not body.startswith(_NPY_MAGIC) or len(body) < 12:
        raise malformed("The body is not in .npy format; write it with numpy.save.")
    width = 2 if body[6] == 1 else 4
    end = 8 + width + int.from_bytes(body[8 : 8 + width], "little")
    if end > min(len(body), _NPY_HEADER_LIMIT):
        raise malformed("The .npy header is cut off or too long; send the whole file.")
    shape, fortran, dtype = _npy_header(body[:end])
    size = prod(shape) * dtype.itemsize
    if len(body) - end != size:
        raise malformed(f"The .npy header announces {size:,} bytes of data, but {len(body) - end:,} arrived.")
    if shape:
        check_count(shape[0], limit)
    array: NDArray[Any] = np.frombuffer(body, dtype, offset=end)
    return spec.validate_batch(array.reshape(shape, order="F" if fortran else "C"))


@lru_cache(maxsize=256)
def _npy_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Parsing the header's Python literal costs more than a small graph run, and callers repeat themselves."""
    reader = _NPY_READERS.get(header[6])
    if reader is None:
        raise malformed(f"The .npy format version {header[6]} is not supported; write it with numpy.save.")
    try:
        shape, fortran, dtype = reader(io.BytesIO(header[8:]))
    except Exception:  # numpy raises many kinds for a bad header
        raise malformed("The .npy header cannot be read; write it with numpy.save.") from None
    if dtype.kind not in "fiub" or dtype.itemsize > 8 or any(size < 0 for size in shape):
        raise invalid_input(f"The .npy file holds {dtype} values; only plain numbers are allowed.")
    return shape, fortran, dtype


def _blame(instances: Sequence[Any], spec: Spec) -> Problem:
    """Which item is to blame for a batch that is no array of numbers."""
    want = spec.item_shape
    for index, item in enumerate(instances):
        try:
            array = np.array(item)
        except (ValueError, OverflowError):
            return _misfit(index, "is not rectangular", spec)
        if array.dtype.kind not in "fiu":
            return _misfit(index, "holds something other than numbers", spec)
        if len(array.shape) != len(want) or any(
            w is not None and w != g for w, g in zip(want, array.shape, strict=True)
        ):
            return _misfit(index, f"has shape {list(array.shape)}", spec)
    return invalid_input(f"The instances differ in shape; the model takes {spec.describe()}, equal within a request.")


def _misfit(index: int, what: str, spec: Spec) -> Problem:
    return invalid_input(f"Item {index} {what}; the model takes {spec.describe()}.", index=index)
