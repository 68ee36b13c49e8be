"""Parquet and Arrow datasets as a source, streamed a few pages at a time."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import BinaryIO
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from models.data import arrow, files, labels
from models.data.model import Batch, Block, Columns, Source, Spec
from models.data.roles import Roles, find_roles
from models.errors import DataError

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
_FILE_MAGIC = b"ARROW1"


@dataclass(frozen=True)
class TableFile:
    """One file of a dataset; `keys` are the columns written into its path as `name=value`."""

    path: str
    groups: tuple[int, ...]  # rows of each row group or record batch
    keys: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return sum(self.groups)

    def read(self, start: int, columns: list[str], size: int) -> Iterator[pa.Table]:
        """Tables of the rows from `start` on, about `size` rows each; row groups before `start` are not touched."""
        first = 0
        while first < len(self.groups) and start >= self.groups[first]:
            start -= self.groups[first]
            first += 1
        if first == len(self.groups):
            return
        stored = [name for name in columns if name not in dict(self.keys)]
        with files.open_binary(self.path) as handle:
            for batch in _record_batches(self.path, handle, first, len(self.groups), stored, size):
                table = pa.table(batch) if len(batch) > start else None
                rows, start = max(0, len(batch) - start), max(0, start - len(batch))
                if table is not None:
                    yield self._with_keys(table.slice(len(batch) - rows), columns)

    def _with_keys(self, table: pa.Table, columns: list[str]) -> pa.Table:
        for name, value in self.keys:
            if name in columns:
                table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        return table.select(columns)


@dataclass(frozen=True)
class TableSource(Source):
    """Files of one schema, read in the order of their names."""

    spec: Spec
    files: tuple[TableFile, ...]
    roles: Roles
    folder: str
    classes: tuple[str, ...] | None

    def __len__(self) -> int:
        return self._n

    @cached_property
    def _n(self) -> int:
        return sum(len(file) for file in self.files)

    @property
    def labelled(self) -> bool:
        return self.roles.label is not None

    @property
    def natural_rows(self) -> int:
        return max((rows for file in self.files for rows in file.groups), default=1)

    @property
    def stored_in(self) -> Iterator[str]:
        return (file.path for file in self.files)

    def describe(self) -> str:
        name = self.files[0].path if len(self.files) == 1 else f"{len(self.files)} files in {self.folder}"
        return f"{name}: {len(self):,} rows, input in column {self.roles.input!r}"

    def fingerprint(self) -> str:
        stamps = [files.stamp(file.path) for file in self.files]
        return hashlib.sha256(repr((stamps, self.roles)).encode()).hexdigest()

    def blocks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        stop = len(self) if stop is None else min(stop, len(self))
        encode = labels.Labels(self.classes)
        at = start
        for table in rebatch(self._tables(start, size), size, stop - start):
            yield Block(self.roles.rows(table, at, encode), table[self.roles.input].combine_chunks())
            at += len(table)

    def decode(self, block: Block) -> Batch:
        return arrow.to_batch(self.spec, block.rows, block.payload, self.folder)

    def _tables(self, start: int, size: int) -> Iterator[pa.Table]:
        for file in self.files:
            if start < len(file):
                yield from file.read(start, self.roles.needed, size)
            start = max(0, start - len(file))


def open_tables(
    paths: Sequence[str], spec: Spec, columns: Columns, folder: str, classes: tuple[str, ...] | None = None
) -> TableSource:
    """Open Parquet or Arrow files of one schema; `name=value` folders on the way become columns."""
    schema: pa.Schema | None = None
    found: list[TableFile] = []
    for path in paths:
        own, groups = _footer(path)
        keys = tuple((n, v) for n, v in _partitions(path, folder) if n not in own.names)
        for name, _ in keys:
            own = own.append(pa.field(name, pa.string()))
        if schema is None:
            schema = own
        elif not schema.equals(own):
            raise DataError(f"{path} has the columns {_say(own)}, but {paths[0]} has {_say(schema)}.")
        found.append(TableFile(path, groups, keys))
    if schema is None:
        raise DataError(f"{folder} holds no Parquet or Arrow file.")
    name = paths[0] if len(paths) == 1 else folder
    return TableSource(spec, tuple(found), find_roles(schema, columns, spec, name), folder, classes)


def rebatch(tables: Iterable[pa.Table], size: int, total: int) -> Iterator[pa.Table]:
    """The first `total` rows in tables of exactly `size` rows, the last one shorter."""
    held: list[pa.Table] = []
    n = 0
    for table in tables:
        table = table.slice(0, total - n)
        held.append(table)
        n += len(table)
        while n >= size:
            joined = held[0] if len(held) == 1 else pa.concat_tables(held)
            yield joined.slice(0, size)
            held, n, total = [joined.slice(size)], n - size, total - size
        if n >= total:
            break
    if n:
        yield pa.concat_tables(held)


def _footer(path: str) -> tuple[pa.Schema, tuple[int, ...]]:
    try:
        with files.open_binary(path) as handle:
            if files.suffix(path) in PARQUET:
                file = pq.ParquetFile(handle)
                meta = file.metadata
                return file.schema_arrow, tuple(meta.row_group(i).num_rows for i in range(meta.num_row_groups))
            if _is_stream(handle):
                stream = ipc.open_stream(handle)
                return stream.schema, tuple(batch.num_rows for batch in stream)
            reader = ipc.open_file(handle)
            return reader.schema, tuple(reader.get_batch(i).num_rows for i in range(reader.num_record_batches))
    except (pa.ArrowException, ValueError) as fault:
        raise DataError(f"{path} cannot be read as {files.suffix(path)[1:]} ({str(fault).splitlines()[0]}).") from fault


def _record_batches(
    path: str, handle: BinaryIO, first: int, groups: int, columns: list[str], size: int
) -> Iterator[pa.RecordBatch]:
    if files.suffix(path) in PARQUET:
        # Without pre_buffer and with a small buffer, pages are read as they are needed, not whole row groups.
        file = pq.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20)
        yield from file.iter_batches(size, row_groups=range(first, groups), columns=columns, use_threads=False)
        return
    if _is_stream(handle):
        yield from (batch.select(columns) for batch in islice(ipc.open_stream(handle), first, None))
        return
    reader = ipc.open_file(handle)
    for i in range(first, groups):
        yield reader.get_batch(i).select(columns)


def _is_stream(handle: BinaryIO) -> bool:
    """Whether an Arrow file is a stream, as Hugging Face datasets are saved: it has no footer and is read in order."""
    start = handle.read(len(_FILE_MAGIC))
    handle.seek(0)
    return bool(start) and start != _FILE_MAGIC


def _partitions(path: str, folder: str) -> Iterator[tuple[str, str]]:
    for part in files.relative(path, folder).split("/")[:-1]:
        name, sign, value = part.partition("=")
        if sign:
            yield name, unquote(value)


def _say(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)
