"""Score tables on disk: CSV and Parquet by the name's ending, or a folder of such parts."""

import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from calibration.errors import TableError

_CSV = (".csv",)
_PARQUET = (".parquet", ".pq")
_REQUIRED = ("s_id", "s_ood", "is_id")
_CLASS_COLUMN = re.compile(r"p_(\d+)")


def read_columns(path: Path, known: Collection[str]) -> dict[str, Any]:
    """The known columns of a file as arrays or lists; `p_0, p_1, ...` come together as `probabilities`."""
    table = _read_parts(path, known) if path.is_dir() else _read_file(path, known)
    names = list(table.column_names)
    doubled = sorted({name for name in names if name in known and names.count(name) > 1})
    if doubled:
        raise TableError(f"{path}: column {doubled[0]!r} occurs {names.count(doubled[0])} times; keep one.")
    absent = [name for name in _REQUIRED if name not in names]
    if absent:
        raise TableError(
            f"{path}: column {absent[0]!r} is missing; a score table needs s_id, s_ood, is_id, and either correct or"
            f" both prediction and label, and this file has {', '.join(names) or 'no columns'}."
        )
    columns = {name: _to_array(table.column(name)) for name in names if name in known}
    if "probabilities" not in columns:
        columns |= _gathered_probabilities(path, table, names)
    return columns


def _read_file(path: Path, known: Collection[str]) -> Any:
    suffix = _suffix(path)
    if not path.is_file():
        raise TableError(f"There is no score table at {path}; give a CSV or Parquet file, or a folder of parts.")
    return _read_csv(path) if suffix in _CSV else _read_parquet(path, known)


def _read_parts(folder: Path, known: Collection[str]) -> Any:
    """The parts that a scoring job wrote into a folder, in the order of their names."""
    import pyarrow as pa

    parts = sorted(file for file in folder.iterdir() if file.suffix.lower() in _CSV + _PARQUET)
    if not parts:
        raise TableError(f"The folder {folder} holds no .csv or .parquet part of a score table.")
    try:
        return pa.concat_tables([_read_file(part, known) for part in parts], promote_options="permissive")
    except pa.ArrowException as error:
        raise TableError(f"The parts in {folder} do not fit together: {str(error).splitlines()[0]}") from None


def write_columns(path: Path, columns: dict[str, np.ndarray]) -> Path:
    """Write columns to a temporary neighbour, then put it in place."""
    suffix = _suffix(path)
    if not path.parent.is_dir():
        raise TableError(f"The folder {path.parent} does not exist; make it first or write elsewhere.")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    os.close(handle)
    try:
        (_write_csv if suffix in _CSV else _write_parquet)(temporary, columns)
        _publish(Path(temporary), path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _CSV + _PARQUET:
        raise TableError(f"{path} ends in {path.suffix or 'nothing'!r}; a score table is a .csv or .parquet file.")
    return suffix


def _publish(temporary: Path, path: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes private files, a table is an ordinary one
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _read_csv(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    # `id` and `group` are names even when they look like numbers: "007" must not become 7
    convert = csv.ConvertOptions(column_types={"id": pa.string(), "group": pa.string()}, strings_can_be_null=False)
    try:
        return csv.read_csv(path, convert_options=convert)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path} cannot be read as CSV: {str(error).splitlines()[0]}") from None


def _read_parquet(path: Path, known: Collection[str]) -> Any:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        names = parquet.read_schema(path).names
        wanted = [name for name in names if name in known or _CLASS_COLUMN.fullmatch(name)]
        return parquet.read_table(path, columns=wanted or names)
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None


def _to_array(column: Any) -> Any:
    """An Arrow column as a numpy array, or as a list of Python values where numpy has no such type."""
    import pyarrow as pa
    from pyarrow import types

    column = column.combine_chunks()
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        return _rows_of_lists(column)
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_boolean(column.type) and column.null_count == 0:
        return column.to_numpy(zero_copy_only=False)
    if types.is_integer(column.type) and column.null_count == 0:
        return column.to_numpy()
    if types.is_floating(column.type):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if types.is_null(column.type):
        return [None] * len(column)
    return np.array(column.to_pylist(), dtype=object)


def _rows_of_lists(column: Any) -> np.ndarray:
    lengths = np.array([0 if row is None else len(row) for row in column])
    if len(lengths) and (lengths != lengths[0]).any():
        row = int(np.argmax(lengths != lengths[0]))
        raise TableError(
            f"Column 'probabilities', row {row + 1}: {lengths[row]} values where row 1 has {lengths[0]};"
            " every row takes one value a class."
        )
    width = int(lengths[0]) if len(lengths) else 0
    flat: np.ndarray = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(lengths), width)


def _gathered_probabilities(path: Path, table: Any, names: list[str]) -> dict[str, np.ndarray]:
    numbers = sorted(int(match[1]) for name in names if (match := _CLASS_COLUMN.fullmatch(name)))
    if not numbers:
        return {}
    if numbers != list(range(len(numbers))):
        gap = next(i for i, number in enumerate(numbers) if i != number)
        raise TableError(
            f"{path}: column 'p_{gap}' is missing; probabilities are p_0 to p_{numbers[-1]} without a gap."
        )
    from calibration.table_columns import floats

    parts = [floats(f"p_{number}", _to_array(table.column(f"p_{number}"))) for number in numbers]
    return {"probabilities": np.column_stack(parts)}


def _write_csv(path: str, columns: dict[str, np.ndarray]) -> None:
    import pyarrow as pa
    from pyarrow import csv

    flat: dict[str, Any] = {}
    for name, column in columns.items():
        if name == "probabilities":
            flat |= {f"p_{number}": column[:, number] for number in range(column.shape[1])}
        else:
            flat[name] = column
    csv.write_csv(pa.table(flat), path)


def _write_parquet(path: str, columns: dict[str, np.ndarray]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    arrays: dict[str, Any] = {}
    for name, column in columns.items():
        if column.ndim == 2:
            arrays[name] = pa.FixedSizeListArray.from_arrays(pa.array(column.reshape(-1)), column.shape[1])
        else:
            arrays[name] = pa.array(column)
    parquet.write_table(pa.table(arrays), path)
