"""Lists of files as a source: folders, globs, CSV, JSONL and plain lists.

The list is kept as Arrow record batches, in a file when there is a place for it, so a list of any length takes
no memory of its own.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc

from models.data import arrow, files, labels
from models.data.model import Batch, Block, Columns, Source, Spec
from models.data.roles import Roles, find_roles
from models.data.tables import rebatch
from models.errors import DataError

_CHUNK = 16_384
Records = Iterator[pa.Table]


@dataclass(frozen=True)
class ListSource(Source):
    """Files named in a list, with the columns of the list."""

    spec: Spec
    store: str | pa.Buffer
    groups: tuple[int, ...]
    digest: str
    roles: Roles
    folder: str
    name: str
    classes: tuple[str, ...] | None

    def __len__(self) -> int:
        return sum(self.groups)

    @property
    def labelled(self) -> bool:
        return self.roles.label is not None

    @property
    def stored_in(self) -> tuple[str]:
        return (self.name,)

    def describe(self) -> str:
        return f"{self.name}: {len(self):,} files"

    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self.digest, self.roles, files.absolute(self.folder))).encode()).hexdigest()

    def blocks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        stop = len(self) if stop is None else min(stop, len(self))
        encode = labels.Labels(self.classes)
        at = start
        for table in rebatch(self._tables(start), size, stop - start):
            yield Block(self.roles.rows(table, at, encode), table[self.roles.input].combine_chunks())
            at += len(table)

    def decode(self, block: Block) -> Batch:
        return arrow.to_batch(self.spec, block.rows, block.payload, self.folder)

    def _tables(self, start: int) -> Iterator[pa.Table]:
        reader = ipc.open_file(pa.OSFile(self.store) if isinstance(self.store, str) else self.store)
        for i, rows in enumerate(self.groups):
            if start < rows:
                yield pa.table(reader.get_batch(i)).slice(start)
            start = max(0, start - rows)


def build_list(
    records: Records,
    spec: Spec,
    columns: Columns,
    *,
    folder: str,
    name: str,
    classes: tuple[str, ...] | None,
    spill: Path | None,
) -> ListSource:
    """Write the records down once, then read them from there."""
    head = next(records, None)
    if head is None or len(head) == 0:
        raise DataError(f"{name} lists no file.")
    roles = find_roles(head.schema, columns, spec, name, paths=True)
    digest = hashlib.sha256()
    groups: list[int] = []
    sink: Any = pa.BufferOutputStream() if spill is None else pa.OSFile(str(spill), "wb")
    with ipc.new_file(sink, head.schema) as writer:
        for table in chain([head], records):
            for batch in table.combine_chunks().to_batches():
                writer.write_batch(batch)
                groups.append(len(batch))
                digest.update(batch.serialize())
    store = sink.getvalue() if spill is None else str(spill)
    sink.close()
    return ListSource(spec, store, tuple(groups), digest.hexdigest(), roles, folder, name, classes)


def folder_records(folder: str, paths: Iterable[str], *, labelled: bool) -> Records:
    """Paths below a folder; the first sub-folder is the label."""
    paths = iter(paths)
    while chunk := list(islice(paths, _CHUNK)):
        inner = [files.as_text(files.relative(path, folder)) for path in chunk]
        columns: dict[str, pa.Array] = {"path": pa.array(inner, pa.string())}
        if labelled:
            tops = [path.split("/", 1)[0] if "/" in path else None for path in inner]
            columns["label"] = pa.array(tops, pa.string())
        yield pa.table(columns)


def path_records(lines: Iterable[str]) -> Records:
    """One path a line; blank lines and lines that start with # are left out."""
    kept = (text for line in lines if (text := line.strip()) and not text.startswith("#"))
    while chunk := list(islice(kept, _CHUNK)):
        yield pa.table({"path": pa.array([files.as_text(path) for path in chunk], pa.string())})


def csv_records(lines: Iterable[str], name: str) -> Records:
    """A CSV list; values stay text, the header names the columns."""
    reader = csv.DictReader(lines, restkey="\0", strict=True)
    if not reader.fieldnames:
        return
    header = [field.strip() for field in reader.fieldnames]
    schema = pa.schema([(field, pa.string()) for field in header])
    reader.fieldnames = header
    try:
        while chunk := list(islice(reader, _CHUNK)):
            _check_width(chunk, name, reader.line_num)
            columns = [pa.array([_cell(row[field]) for row in chunk], pa.string()) for field in header]
            yield pa.Table.from_arrays(columns, schema=schema)
    except csv.Error as fault:
        raise DataError(f"{name}, line {reader.line_num}: {fault}.") from fault


def json_records(lines: Iterable[str], name: str) -> Records:
    """A JSON Lines list; the first lines settle the columns and their types."""
    numbered = ((i, line) for i, line in enumerate(lines, 1) if line.strip())
    schema: pa.Schema | None = None
    while chunk := list(islice(numbered, _CHUNK)):
        rows = [_json_row(i, line, name) for i, line in chunk]
        try:
            table = pa.Table.from_pylist(rows) if schema is None else pa.Table.from_pylist(rows, schema)
        except (pa.ArrowException, TypeError, UnicodeEncodeError) as fault:
            raise DataError(f"{name}, lines {chunk[0][0]} to {chunk[-1][0]}: {fault}.") from fault
        if schema is None:
            keys = list(dict.fromkeys(key for row in rows for key in row))
            table = pa.Table.from_pylist([{key: row.get(key) for key in keys} for row in rows])
            schema = table.schema
        known = set(schema.names)
        late = next(
            ((i, key) for (i, _), row in zip(chunk, rows, strict=True) for key in row if key not in known), None
        )
        if late is not None:
            raise DataError(f"{name}, line {late[0]}: the key {late[1]!r} is new; name every key in the first lines.")
        yield table


def _cell(value: str | None) -> str | None:
    return None if value is None else files.as_text(value)


def _check_width(rows: list[dict[str, Any]], name: str, line: int) -> None:
    if any("\0" in row for row in rows):
        raise DataError(f"{name}, up to line {line}: a row has more values than the header has names.")


def _json_row(line: int, text: str, name: str) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except ValueError as fault:
        raise DataError(f"{name}, line {line} is no JSON ({fault}).") from fault
    if not isinstance(row, dict):
        raise DataError(f"{name}, line {line} is no JSON object; write one object with a path a line.")
    return row
