"""Score tables with names, as the report takes them from files."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from calibration.errors import TableError
from calibration.table import ScoreTable
from calibration.table_files import read_columns


@dataclass(frozen=True)
class NamedTable:
    """A score table, what it is called in the report, and the names of its classes where they are known."""

    name: str
    table: ScoreTable
    classes: Sequence[str] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """Of the table's contents."""
        return self.table.fingerprint()


def read_tables(paths: Sequence[str | Path]) -> list[NamedTable]:
    """Score tables by the stem of their file, with its folder where two are alike.

    A column `class`, which `airlock score` writes beside `prediction`, gives the names of the classes.
    """
    files = [Path(path) for path in paths]
    return [_read(name, file) for name, file in zip(_names(files), files, strict=True)]


def _names(files: Sequence[Path]) -> list[str]:
    stems = [file.stem for file in files]
    longer = [
        stem if stems.count(stem) == 1 else f"{file.absolute().parent.name}/{stem}"
        for file, stem in zip(files, stems, strict=True)
    ]
    return [
        name if longer.count(name) == 1 else f"{name} ({longer[: place + 1].count(name)})"
        for place, name in enumerate(longer)
    ]


def _read(name: str, path: Path) -> NamedTable:
    columns = read_columns(path, {field.name for field in fields(ScoreTable)} | {"class"})
    words = columns.pop("class", None)
    try:
        table = ScoreTable.from_columns(**columns)
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    return NamedTable(name, table, _class_names(table, words))


def _class_names(table: ScoreTable, words: Any) -> list[str] | None:
    """One name a class number, where the columns agree on it."""
    if words is None or table.prediction is None or table.prediction.dtype.kind != "i":
        return None
    named = np.array(["" if word is None else str(word) for word in words])
    pairs = {(int(number), str(word)) for number, word in zip(table.prediction, named, strict=True) if word}
    numbers = [number for number, _ in pairs]
    if not numbers or min(numbers) < 0 or len(set(numbers)) < len(pairs):
        return None
    known = dict(pairs)
    return [known.get(number, str(number)) for number in range(max(numbers) + 1)]
