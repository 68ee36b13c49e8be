"""One validator a kind of column; a refusal names the column, the row (counted from 1) and the value."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from calibration.errors import TableError

_TRUE = frozenset({"true", "t", "yes", "y", "1", "1.0"})
_FALSE = frozenset({"false", "f", "no", "n", "0", "0.0"})


def fitting_rows(columns: Mapping[str, Any]) -> None:
    """Every column must have as many rows as `s_id`."""
    for name, column in columns.items():
        if not hasattr(column, "__len__") or isinstance(column, str):
            raise TableError(f"Column {name!r} is {column!r}; give one value a row.")
    expected = len(columns["s_id"])
    for name, column in columns.items():
        if len(column) != expected:
            raise TableError(
                f"Column {name!r} has {len(column)} rows where 's_id' has {expected}; give one value a row."
            )


def floats(name: str, column: Any) -> np.ndarray:
    """A float64 column; a missing value becomes NaN."""
    return _one_dimension(name, _numbers(name, column))


def matrix(name: str, column: Any) -> np.ndarray | None:
    """A float64 matrix with one row a sample, or None."""
    if column is None:
        return None
    values = _numbers(name, column)
    if values.ndim != 2 or values.shape[1] < 1:
        raise TableError(f"Column {name!r} has the shape {values.shape}; it takes one row of C values a sample.")
    bad = ~((values >= 0.0) & (values <= 1.0 + 1e-6))
    if bad.any():
        row, position = (int(i) for i in np.argwhere(bad)[0])
        raise TableError(
            f"Column {name!r}, row {row + 1}: {values[row, position]} (class {position}) is no probability;"
            " every entry lies in [0, 1]."
        )
    off = np.abs(values.sum(axis=1) - 1.0) > 1e-3
    if off.any():
        row = int(np.argmax(off))
        raise TableError(f"Column {name!r}, row {row + 1}: the entries add up to {values[row].sum():.6g} instead of 1.")
    return values


def weights(column: Any) -> np.ndarray | None:
    """Weights: finite and not negative, or None."""
    if column is None:
        return None
    values = floats("weight", column)
    bad = ~np.isfinite(values) | (values < 0.0)
    if bad.any():
        row = int(np.argmax(bad))
        raise TableError(f"Column 'weight', row {row + 1}: {values[row]} is no weight; give a finite number >= 0.")
    return values


def booleans(name: str, column: Any, missing: np.ndarray | None = None) -> np.ndarray:
    """A bool column from bools, 0/1, or words; where `missing` is True an empty value reads as False."""
    array = _one_dimension(name, np.asarray(column))
    if array.dtype.kind == "b":
        return array
    allowed_empty = np.zeros(len(array), dtype=bool) if missing is None else missing
    if array.dtype.kind in "iuf":
        empty = np.isnan(array) if array.dtype.kind == "f" else np.zeros(len(array), dtype=bool)
        bad = np.where(empty, ~allowed_empty, (array != 0) & (array != 1))
        if bad.any():
            row = int(np.argmax(bad))
            raise _not_boolean(name, row, None if empty[row] else array[row].item())
        truth: np.ndarray = array == 1
        return truth
    return np.fromiter(_parsed_booleans(name, array, allowed_empty), dtype=bool, count=len(array))


def classes(name: str, column: Any) -> np.ndarray | None:
    """Class labels: int64 where every value is a whole number (missing is -1), otherwise strings."""
    if column is None:
        return None
    array = _one_dimension(name, np.asarray(column))
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        whole = np.isnan(array) | (array == np.floor(array)) & np.isfinite(array)
        if not whole.all():
            row = int(np.argmin(whole))
            raise TableError(f"Column {name!r}, row {row + 1}: {array[row]} is no class, give a number or a name.")
        return np.where(np.isnan(array), -1, array).astype(np.int64)
    present = [value for value in array.tolist() if not _is_missing(value)]
    if present and all(isinstance(value, int) and not isinstance(value, bool) for value in present):
        return np.array([-1 if _is_missing(v) else v for v in array.tolist()], dtype=np.int64)
    return strings(array)


def strings(column: Any) -> np.ndarray | None:
    """A column of str; a missing value becomes the empty string."""
    if column is None:
        return None
    array = np.asarray(column)
    if array.dtype.kind == "U":
        return array
    texts = ["" if _is_missing(value) else str(value) for value in array.tolist()]
    return np.array(texts, dtype=str) if texts else np.empty(0, dtype="<U1")


def _numbers(name: str, column: Any) -> np.ndarray:
    """A float64 copy, or a refusal that names the first value that is no number."""
    array = column if isinstance(column, np.ndarray) else np.asarray(column)
    if array.dtype.kind in "fiu":
        return np.ascontiguousarray(array, dtype=np.float64)
    if array.dtype.kind == "b":
        raise TableError(f"Column {name!r}, row 1: {bool(array.flat[0])} is no number.")
    flat = list(_parsed(array.reshape(-1).tolist(), lambda row, value: _not_number(name, row, value, array)))
    return np.array(flat, dtype=np.float64).reshape(array.shape)


def _parsed(values: Iterable[Any], refuse: Callable[[int, Any], TableError]) -> Iterable[float]:
    for row, value in enumerate(values):
        if _is_missing(value):
            yield np.nan
            continue
        try:
            yield float(value)
        except (TypeError, ValueError):
            raise refuse(row, value) from None


def _parsed_booleans(name: str, array: np.ndarray, allowed_empty: np.ndarray) -> Iterable[bool]:
    for row, value in enumerate(array.tolist()):
        if _is_missing(value):
            if not allowed_empty[row]:
                raise _not_boolean(name, row, None)
            yield False
            continue
        word = str(value).strip().lower()
        if word not in _TRUE and word not in _FALSE:
            raise _not_boolean(name, row, value)
        yield word in _TRUE


def _is_missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and np.isnan(value))


def _not_boolean(name: str, row: int, value: Any) -> TableError:
    found = "nothing" if value is None else repr(value)
    return TableError(f"Column {name!r}, row {row + 1}: {found} stands where true or false is needed (also 1 or 0).")


def _not_number(name: str, flat_row: int, value: Any, array: np.ndarray) -> TableError:
    row = flat_row // (array.size // len(array))
    return TableError(f"Column {name!r}, row {row + 1}: {value!r} is no number.")


def _one_dimension(name: str, array: np.ndarray) -> np.ndarray:
    if array.ndim != 1:
        raise TableError(f"Column {name!r} has {array.ndim} dimensions; it takes one value a row.")
    return array
