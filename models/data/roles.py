"""Which column of a table plays which part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from models.data import labels
from models.data.arrow import input_kind
from models.data.model import Columns, Rows, Spec
from models.errors import DataError
from models.inputs import ImageInput

_INPUT = ("x", "image", "images", "input", "inputs", "pixels", "tensor", "features")
PATH_NAMES = ("path", "file", "filename", "file_name", "image_path", "url")
_LABEL = ("label", "y", "labels", "target")
_GROUP = ("group",)
_ID = ("id",)


@dataclass(frozen=True)
class Roles:
    """The columns found in a table."""

    input: str
    label: str | None
    group: str | None
    id: str | None
    carried: tuple[str, ...]

    @property
    def needed(self) -> list[str]:
        """Every column to read, each once."""
        named = (self.input, self.label, self.group, self.id, *self.carried)
        return list(dict.fromkeys(name for name in named if name is not None))

    def rows(self, table: pa.Table, start: int, encode: labels.Labels) -> Rows:
        """All of a table but its inputs."""
        y, names = encode.encode(table[self.label]) if self.label else (None, None)
        return Rows(
            start=start,
            ids=labels.text_column(table[self.id]) if self.id else labels.row_numbers(start, len(table)),
            y=y,
            names=names,
            group=labels.text_column(table[self.group]) if self.group else None,
            carried=table.select(self.carried),
        )


def find_roles(schema: pa.Schema, columns: Columns, spec: Spec, name: str, *, paths: bool = False) -> Roles:
    """Match the columns asked for, or the usual names, to a schema; `paths` for lists of files."""
    twice = next((column for column in schema.names if schema.names.count(column) > 1), None)
    if twice is not None:
        raise DataError(f"{name} has two columns called {twice!r}; rename one of them.")
    _all_there(schema, columns, name)
    found = columns.input or _find_input(schema, spec, name, paths)
    label = (columns.label or _first(schema.names, _LABEL)) if columns.labels else None
    group = columns.group or _first(schema.names, _GROUP)
    key = columns.id or _first(schema.names, _ID) or (found if paths else None)  # a listed file's id is its path
    for role, column in (("group", group), ("id", key)):
        if column is not None and not labels.can_be_text(schema.field(column).type):
            kind = schema.field(column).type
            raise DataError(
                f"The column {column!r} of {name} holds {kind}, which cannot be written as text; name another with "
                f"--{role}-column."
            )
    parts = {label, group, key} | ({found} if not paths else set())
    kept = (c for c in schema.names if c not in parts and (columns.carry is None or c in columns.carry))
    return Roles(found, label, group, key, tuple(kept))


def _all_there(schema: pa.Schema, columns: Columns, name: str) -> None:
    for asked in (columns.input, columns.label, columns.group, columns.id, *(columns.carry or ())):
        if asked is not None and asked not in schema.names:
            raise DataError(f"{name} has no column {asked!r}; it has {', '.join(schema.names)}.")
    if columns.input is not None and input_kind(schema.field(columns.input).type) is None:
        kind = schema.field(columns.input).type
        raise DataError(f"The column {columns.input!r} of {name} holds {kind}; lists, bytes or paths are allowed.")


def _find_input(schema: pa.Schema, spec: Spec, name: str, paths: bool) -> str:
    if paths:
        found = _first(schema.names, PATH_NAMES) or _first(schema.names, _INPUT)
    else:
        found = next(_candidates(schema, _INPUT), None) or _sole(schema) or next(_candidates(schema, PATH_NAMES), None)
    if found is None:
        what = (
            "a path column"
            if paths
            else f"lists of numbers or {'images' if isinstance(spec, ImageInput) else '.npy'} bytes"
        )
        raise DataError(
            f"No column of {name} can be told to be the input among {', '.join(schema.names) or 'none'}; it must hold "
            f"{what} and be named with --column or be called {(PATH_NAMES if paths else _INPUT)[0]}."
        )
    return found


def _candidates(schema: pa.Schema, usual: Sequence[str]) -> Iterator[str]:
    return (name for name in usual if name in schema.names and input_kind(schema.field(name).type) is not None)


def _sole(schema: pa.Schema) -> str | None:
    """The only column that can be an input by its type; text is too common to count."""
    able = [field.name for field in schema if input_kind(field.type) in ("numbers", "bytes", "struct")]
    return able[0] if len(able) == 1 else None


def _first(names: Sequence[str], usual: Sequence[str]) -> str | None:
    return next((name for name in usual if name in names), None)
