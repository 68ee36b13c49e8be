"""Array files as a source: `.npy`, and `.npz` with x and, if there, y, id, group and further columns."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.data import files, items, labels
from models.data.arrayfile import ArrayFile, chain, open_npy, open_npz
from models.data.model import Batch, Block, Columns, Rows, Source, Spec
from models.errors import DataError, InputError

_INPUT = ("x", "images", "inputs", "data", "arr_0")
_LABEL = ("y", "label", "labels", "target")
_GROUP = ("group", "groups")
_ID = ("id", "ids")


@dataclass(frozen=True)
class ArraySource(Source):
    """One or several array files of the same layout, read one after the other."""

    spec: Spec
    x: tuple[ArrayFile, ...]
    columns: dict[str, tuple[ArrayFile, ...]]  # role or carried name -> the files' members
    carried: tuple[str, ...]
    classes: tuple[str, ...] | None

    def __len__(self) -> int:
        return self._n

    @cached_property
    def _n(self) -> int:
        return sum(len(array) for array in self.x)

    @property
    def labelled(self) -> bool:
        return "y" in self.columns

    @property
    def item_bytes(self) -> int:
        inner = int(np.prod(self.x[0].shape[1:], dtype=np.int64))
        return inner * max(self.x[0].dtype.itemsize, self.spec.np_dtype.itemsize)

    @property
    def stored_in(self) -> Iterator[str]:
        return (array.path for array in self.x)

    def describe(self) -> str:
        name = self.x[0].path if len(self.x) == 1 else f"{len(self.x)} array files"
        return f"{name}: {len(self):,} items of shape {list(self.x[0].shape[1:])}"

    def fingerprint(self) -> str:
        stamps = [files.stamp(array.path) for array in self.x]
        layout = [self.x[0].member, *sorted(self.columns)]
        return hashlib.sha256(repr((stamps, layout)).encode()).hexdigest()

    def blocks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        stop = len(self) if stop is None else min(stop, len(self))
        take_x = chain(self.x, start)
        takes = {name: chain(arrays, start) for name, arrays in self.columns.items()}
        encode = labels.Labels(self.classes)
        for at in range(start, stop, size):
            n = min(size, stop - at)
            values = {name: _column(take(n)) for name, take in takes.items()}
            y, names = encode.encode(values["y"]) if "y" in values else (None, None)
            rows = Rows(
                start=at,
                ids=labels.text_column(values["id"]) if "id" in values else labels.row_numbers(at, n),
                y=y,
                names=names,
                group=labels.text_column(values["group"]) if "group" in values else None,
                carried=pa.table({name: values[f"={name}"] for name in self.carried}),
            )
            yield Block(rows, take_x(n))

    def decode(self, block: Block) -> Batch:
        return items.from_array(self.spec, block.rows, block.payload)


def open_arrays(
    paths: Sequence[str], spec: Spec, columns: Columns, classes: tuple[str, ...] | None = None
) -> ArraySource:
    """Open `.npy` and `.npz` files that share a layout."""
    opened = [_members(path, columns) for path in paths]
    roles = [set(members) for members in opened]
    if any(found != roles[0] for found in roles):
        raise DataError("The array files have different members; score them one by one or give them the same.")
    x = tuple(members.pop("x") for members in opened)
    for array in x:
        _check(array, spec)
    carried = tuple(sorted(name.removeprefix("=") for name in opened[0] if name.startswith("=")))
    return ArraySource(spec, x, {name: tuple(m[name] for m in opened) for name in opened[0]}, carried, classes)


def _members(path: str, columns: Columns) -> dict[str, ArrayFile]:
    """Members by role: x, y, id, group, and `=name` for those to carry."""
    if files.suffix(path) == ".npy":
        asked = (columns.input, columns.label, columns.group, columns.id, *(columns.carry or ()))
        if any(name is not None for name in asked):
            named = next(name for name in asked if name is not None)
            raise DataError(f"{path} is one array and has no member {named!r}; an .npz or a table holds several.")
        return {"x": open_npy(path)}
    members = open_npz(path)
    for name in columns.carry or ():
        _find(members, name, (), path)
    roles = {"x": _find(members, columns.input, _INPUT, path, needed=True)}
    if columns.labels:
        roles["y"] = _find(members, columns.label, _LABEL, path)
    roles["group"] = _find(members, columns.group, _GROUP, path)
    roles["id"] = _find(members, columns.id, _ID, path)
    found = {role: members[name] for role, name in roles.items() if name is not None}
    n = len(found["x"])
    for role, array in found.items():
        if role != "x" and (len(array) != n or len(array.shape) != 1):
            raise DataError(
                f"{array.name} has shape {list(array.shape)}; one value for each of the {n} items is needed."
            )
        if role != "x" and not _tabular(array):
            raise DataError(f"{array.name} holds {array.dtype} values; numbers, text or times are allowed.")
    used = {name for name in roles.values() if name is not None}
    for name, array in members.items():
        wanted = name not in used and (columns.carry is None or name in columns.carry)
        if wanted and len(array) == n and len(array.shape) == 1 and _tabular(array):
            found[f"={name}"] = array
    return found


def _find(
    members: dict[str, ArrayFile], asked: str | None, usual: Sequence[str], path: str, *, needed: bool = False
) -> str | None:
    names = ", ".join(members) or "nothing"
    if asked is not None:
        if asked not in members:
            raise DataError(f"{path} has no member {asked!r}; it holds {names}.")
        return asked
    found = next((name for name in usual if name in members), None)
    if found is None and needed:
        if len(members) == 1:
            return next(iter(members))
        raise DataError(f"{path} holds {names}; the inputs must be called x.")
    return found


def _check(array: ArrayFile, spec: Spec) -> None:
    """Refuse a whole file of the wrong shape or type at once, not row by row."""
    example = np.zeros((1, *array.shape[1:]), array.dtype) if array.dtype.kind in "fiub" else None
    try:
        if example is None:
            raise InputError(f"The model takes {spec.describe()}, but {array.dtype} values arrived.")
        spec.validate_batch(items.fit_shape(spec, example))
    except InputError as refusal:
        raise DataError(f"{array.name}: {refusal}") from refusal


def _tabular(array: ArrayFile) -> bool:
    """Whether a column of a table can hold the values; Arrow knows no complex numbers, for example."""
    try:
        _column(np.empty(0, array.dtype))
    except pa.ArrowException:
        return False
    return True


def _column(values: NDArray[Any]) -> pa.Array:
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if not values.dtype.isnative:  # Arrow takes this machine's byte order only
        values = values.astype(values.dtype.newbyteorder("="))
    return pa.array(values)
