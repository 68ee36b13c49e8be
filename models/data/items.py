"""From raw values to the inputs a model takes, with a fault for each item that cannot be one."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.data import files
from models.data.model import Batch, Fault, Items, Rows, Spec
from models.errors import InputError, ModelsError
from models.inputs import ImageInput

NOT_FINITE = Fault("not_finite", "The item holds a value that is not finite (NaN or infinity).")


def from_array(spec: Spec, rows: Rows, x: NDArray[Any], positions: NDArray[np.int64] | None = None) -> Batch:
    """A batch from an array of items; rows that are missing from `positions` must be given their fault later."""
    where = np.arange(len(x), dtype=np.int64) if positions is None else positions
    x = fit_shape(spec, x)
    faults: dict[int, Fault] = {}
    finite = finite_rows(spec, x)
    if not finite.all():
        faults = {int(i): NOT_FINITE for i in where[~finite]}
        x, where = x[finite], where[finite]
    try:
        return Batch(rows, _items(where, spec.validate_batch(x)), faults)
    except InputError:
        good, values = _one_by_one(spec, x, where, faults)
    return Batch(rows, by_shape(good, values), faults)


def from_each(spec: Spec, rows: Rows, load: Callable[[int], NDArray[Any]]) -> Batch:
    """A batch of items loaded one at a time; `load` raises for an item it cannot read."""
    positions: list[int] = []
    values: list[NDArray[Any]] = []
    faults: dict[int, Fault] = {}
    for i in range(len(rows)):
        try:
            values.append(spec.validate_batch(fit_shape(spec, load(i)[None]))[0])
            positions.append(i)
        except (ModelsError, OSError) as refusal:
            faults[i] = fault_of(refusal)
    return Batch(rows, by_shape(positions, values), faults)


def decode_item(spec: Spec, data: bytes) -> NDArray[Any]:
    """One item from the bytes of a file: a `.npy` array, or an image for bundles that take images."""
    is_array = data.startswith(b"\x93NUMPY")
    if isinstance(spec, ImageInput) and not is_array:
        return spec.decode(data)
    if not is_array:
        raise InputError(
            f"The bundle takes tensors ({spec.describe()}), so each file must be a .npy array; build the bundle with "
            "an image input to score images."
        )
    try:
        array: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as fault:
        raise InputError(f"The .npy file cannot be read ({fault}).") from fault
    return array


def fault_of(refusal: Exception) -> Fault:
    """The reason and the sentence behind an exception that one item caused."""
    if isinstance(refusal, InputError) and refusal.index is not None:
        return NOT_FINITE
    if isinstance(refusal, FileNotFoundError):
        return Fault("unreadable", f"No such file: {files.as_text(str(refusal.filename or refusal))}.")
    text = str(refusal) or type(refusal).__name__
    return Fault("unreadable", text if text.endswith(".") else f"{text}.")


def fit_shape(spec: Spec, x: NDArray[Any]) -> NDArray[Any]:
    """Undo the harmless ways of storing an item: flat, without the single channel, in wider integers."""
    sizes = [size for size in spec.item_shape if size is not None]
    flat = x.ndim == 2 and 1 < len(sizes) == len(spec.item_shape)
    if flat and x.shape[1] == np.prod(sizes):
        x = x.reshape(len(x), *sizes)
    elif isinstance(spec, ImageInput) and spec.channels == 1 and x.ndim == 3:
        x = x[..., None]
    if x.dtype.kind in "iu" and spec.np_dtype.kind in "iu" and x.dtype != spec.np_dtype and x.size:
        limits = np.iinfo(spec.np_dtype)
        if x.min() >= limits.min and x.max() <= limits.max:
            x = x.astype(spec.np_dtype)
    return x


def finite_rows(spec: Spec, x: NDArray[Any]) -> NDArray[np.bool_]:
    """Which items stay finite in the model's own type (a float64 may overflow a float32)."""
    if x.dtype.kind != "f" or spec.np_dtype.kind != "f":
        return np.ones(len(x), bool)
    with np.errstate(over="ignore"):
        finite = np.isfinite(x.astype(spec.np_dtype, copy=False))
    if finite.all():
        return np.ones(len(x), bool)
    rows: NDArray[np.bool_] = finite.reshape(len(x), -1).all(axis=1)
    return rows


def by_shape(positions: Sequence[int], values: Sequence[NDArray[Any]]) -> tuple[Items, ...]:
    """Stack items; models that leave a size open may get several shapes in one batch."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, value in enumerate(values):
        groups.setdefault(value.shape, []).append(i)
    where = np.asarray(positions, np.int64)
    return tuple(Items(where[index], np.stack([values[i] for i in index])) for index in groups.values())


def _items(where: NDArray[np.int64], x: NDArray[Any]) -> tuple[Items, ...]:
    return (Items(where, x),) if len(x) else ()


def _one_by_one(
    spec: Spec, x: NDArray[Any], where: NDArray[np.int64], faults: dict[int, Fault]
) -> tuple[list[int], list[NDArray[Any]]]:
    good: list[int] = []
    values: list[NDArray[Any]] = []
    for i, position in enumerate(where):
        try:
            values.append(spec.validate_batch(x[i : i + 1])[0])
            good.append(int(position))
        except InputError as refusal:
            faults[int(position)] = fault_of(refusal)
    return good, values
