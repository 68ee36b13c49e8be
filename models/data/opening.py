"""From a data argument to a source: the one place that knows which argument means what."""

import csv
import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from models.data import files, listing
from models.data.arrayfile import open_npy
from models.data.arrays import open_arrays
from models.data.labels import UNLABELLED
from models.data.model import Columns, Source, Spec
from models.data.roles import PATH_NAMES
from models.data.tables import ARROW, PARQUET, open_tables
from models.errors import DataError

ARRAYS = (".npy", ".npz")
TABLES = PARQUET + ARROW
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
LISTS = (".csv", ".jsonl", ".ndjson", ".txt", ".lst")


@dataclass(frozen=True)
class _Opener:
    """The circumstances of one `open_source` call."""

    spec: Spec
    columns: Columns
    classes: tuple[str, ...] | None
    spill: Path | None
    stdin: TextIO | None

    def open(self, arg: str) -> Source:
        if arg == "-":
            return self._list(self.stdin or _standard_input(), "standard input", os.getcwd(), "")
        if files.is_pattern(arg):
            return self._many(_expanded(arg), files.pattern_root(arg), arg)
        if not files.is_url(arg) and not os.path.exists(arg):
            raise DataError(f"{arg} does not exist.")
        kind = files.suffix(arg)
        if kind in LISTS:
            with files.open_binary(arg) as handle, io.TextIOWrapper(handle, "utf-8-sig") as lines:
                return self._list(lines, arg, files.parent(arg), kind)
        if kind in (*ARRAYS, *TABLES, *IMAGES):
            return self._many([arg], files.parent(arg), arg)
        if files.is_dir(arg):
            return self._folder(arg.rstrip("/") if len(arg) > 1 else arg)
        known = ", ".join((*ARRAYS, *TABLES, *LISTS))
        raise DataError(f"{arg} is no data this command reads; it takes {known}, an image, a folder, a glob or -.")

    def _many(self, paths: list[str], root: str, name: str) -> Source:
        kinds = {_family(path) for path in paths}
        if len(kinds) != 1:
            raise DataError(f"{name} matches files of different kinds; name one kind, as in '*.png'.")
        kind = kinds.pop()
        if kind == "table":
            return open_tables(paths, self.spec, self.columns, root, self.classes)
        if kind == "array" and not self._one_item_each(paths[0]):
            return open_arrays(paths, self.spec, self.columns, self.classes)
        if kind is None:
            raise DataError(f"{name} matches no array, table or image file.")
        return self._build(listing.folder_records(root, paths, labelled=False), root, name, self.classes)

    def _one_item_each(self, path: str) -> bool:
        """A `.npy` of the shape of an item is an item; any other must be a batch."""
        if files.suffix(path) != ".npy":
            return False
        shape, want = open_npy(path).shape, self.spec.item_shape
        return len(shape) == len(want) and all(w in (None, g) for w, g in zip(want, shape, strict=True))

    def _folder(self, folder: str) -> Source:
        walked = (path for path in files.walk(folder) if _family(path) is not None)
        first = next(walked, None)
        if first is None:
            raise DataError(f"{folder} holds no image, array or table.")
        kind = _family(first)
        same = (path for path in chain([first], walked) if _family(path) == kind)
        if kind == "table":
            return open_tables(list(same), self.spec, self.columns, folder, self.classes)
        if kind == "array" and not self._one_item_each(first):
            return open_arrays(list(same), self.spec, self.columns, self.classes)
        classes, labelled = self._folder_classes(folder)
        return self._build(listing.folder_records(folder, same, labelled=labelled), folder, folder, classes)

    def _folder_classes(self, folder: str) -> tuple[tuple[str, ...] | None, bool]:
        """Sub-folders are labels when one of them is a class; else they are only a way to sort files.

        Without class names the sub-folders in sorted order are the classes.
        """
        below = files.subfolders(folder)
        if not self.columns.labels or not below:
            return self.classes, False
        if self.classes is None:
            return tuple(below), True
        indices = {str(i) for i in range(len(self.classes))}
        return self.classes, any(name in self.classes or name in indices for name in below)

    def _list(self, stream: TextIO, name: str, folder: str, kind: str) -> Source:
        first = next((line for line in stream if line.strip()), "")
        lines: Iterator[str] = chain([first], stream)
        if kind in (".jsonl", ".ndjson") or (kind == "" and first.lstrip().startswith("{")):
            records = listing.json_records(lines, name)
        elif kind != ".txt" and self._is_header(first, ","):
            records = listing.csv_records(lines, name)
        elif kind == ".csv" and any(self._is_header(first, mark) for mark in ";\t"):
            raise DataError(f"{name} has the header {first.strip()!r}; its columns must be separated by commas.")
        elif kind == ".csv" and "," in first:
            columns = first.strip()
            raise DataError(
                f"{name} has the header {columns!r}; a column called path must name the files, or --column another."
            )
        else:
            records = listing.path_records(lines)
        return self._build(records, folder, name, self.classes)

    def _is_header(self, line: str, mark: str) -> bool:
        """Whether a line names the column of the files: the one asked for, or a usual one."""
        names = (*PATH_NAMES, self.columns.input)
        return any(field.strip() in names for field in next(csv.reader([line], delimiter=mark), []))

    def _build(self, records: listing.Records, folder: str, name: str, classes: tuple[str, ...] | None) -> Source:
        return listing.build_list(
            records, self.spec, self.columns, folder=folder, name=name, classes=classes, spill=self.spill
        )


def open_source(
    arg: str | Path,
    spec: Spec,
    *,
    classes: Sequence[str] | None = None,
    columns: Columns | None = None,
    spill: Path | None = None,
    stdin: TextIO | None = None,
) -> Source:
    """Open a data argument for a model that takes `spec`.

    `classes` turn label names into indices. A list of files is written to `spill`, when given, instead of being
    held in memory.
    """
    if isinstance(arg, str) and arg.startswith("file://"):
        arg = arg.removeprefix("file://")
    known = None if classes is None else tuple(classes)
    opener = _Opener(spec, columns or Columns(), known, spill, stdin)
    try:
        return opener.open(str(arg))
    except DataError:
        raise
    except FileNotFoundError as fault:
        raise DataError(f"{fault.filename or arg} does not exist.") from fault
    except (OSError, UnicodeDecodeError) as fault:
        raise DataError(f"{arg} cannot be read ({fault}).") from fault
    except ValueError as fault:  # what remote stores raise
        if not files.is_url(str(arg)):
            raise
        raise DataError(f"{arg} cannot be read ({fault}) Download it first.") from fault


def load_arrays(
    arg: str | Path, spec: Spec, *, classes: Sequence[str] | None = None, columns: Columns | None = None
) -> tuple[NDArray, NDArray[np.int64] | None]:
    """All inputs of a data argument and their labels, in memory; one unreadable item refuses the whole."""
    source = open_source(arg, spec, classes=classes, columns=columns)
    inputs: list[NDArray] = []
    y: list[NDArray[np.int64]] = []
    for batch in source.batches(1024):
        if batch.faults:
            row, fault = min(batch.faults.items())
            raise DataError(f"{arg}, item {batch.ids[row]}: {fault.message}")
        if len(batch.items) != 1 or (inputs and inputs[0].shape[1:] != batch.items[0].x.shape[1:]):
            raise DataError(f"{arg} holds items of different shapes, which do not fit into one array.")
        inputs.append(batch.items[0].x)
        if batch.y is not None:
            y.append(batch.y)
    if not inputs:
        raise DataError(f"{arg} holds no item.")
    labels = np.concatenate(y) if y else None
    if labels is not None and (labels == UNLABELLED).any():
        raise DataError(f"{arg}: {int((labels == UNLABELLED).sum())} of {len(labels)} items have no label.")
    return np.concatenate(inputs), labels


def _family(path: str) -> str | None:
    kind = files.suffix(path)
    return "array" if kind in ARRAYS else "table" if kind in TABLES else "image" if kind in IMAGES else None


def _standard_input() -> TextIO:
    """Standard input as a list of names, which need not be UTF-8."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")
    return sys.stdin


def _expanded(pattern: str) -> list[str]:
    paths = [path for path in files.expand(pattern) if _family(path) is not None]
    if not paths:
        raise DataError(f"{pattern} matches no array, table or image file.")
    return paths
