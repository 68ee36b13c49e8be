"""The output as files: a table as Parquet, CSV or JSON Lines, and many parts as one file."""

import base64
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from service.batch.errors import JobError

SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_OTHER_FILES = (".json", ".tsv", ".txt", ".arrow", ".feather", ".npy", ".npz", ".xlsx", ".gz", ".zip")
FORMATS = ("parquet", "csv", "jsonl")


def write_table(table: pa.Table, sink: BinaryIO, kind: str) -> None:
    """Write one part."""
    if kind == "parquet":
        pq.write_table(table, sink, **_parquet(table.schema))
    elif kind == "csv":
        pc.write_csv(_flat(table), sink)
    else:
        for batch in table.to_batches(8192):
            rows = batch.to_pylist()
            sink.writelines(orjson.dumps(row, default=_plain, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def merge(parts: Sequence[Path], target: BinaryIO, kind: str) -> None:
    """Join parts into one file, a part at a time."""
    if kind == "parquet":
        schema = pq.read_schema(parts[0])
        with pq.ParquetWriter(target, schema, **_parquet(schema)) as writer:
            for part in parts:
                writer.write_table(pq.read_table(part, schema=schema))
        return
    for i, part in enumerate(parts):
        with part.open("rb") as source:
            if kind == "csv" and i:
                _skip_record(source)
            shutil.copyfileobj(source, target, 1 << 20)


def read_columns(parts: Sequence[Path], kind: str, names: Sequence[str]) -> pa.Table:
    """Some columns of parts that were written, for evaluating them."""
    tables = []
    for part in parts:
        if kind == "parquet":
            tables.append(pq.read_table(part, columns=[n for n in names if n in pq.read_schema(part).names]))
        elif kind == "csv":
            types = pc.ConvertOptions(column_types={"id": pa.string(), "group": pa.string()})
            table = pc.read_csv(part, convert_options=types)
            tables.append(table.select([n for n in names if n in table.column_names]))
        else:
            tables.append(_read_jsonl(part, names))
    return pa.concat_tables(tables, promote_options="permissive")


def _parquet(schema: pa.Schema) -> dict[str, Any]:
    """A dictionary for every column but those whose values rarely repeat: half the time and a smaller file."""
    few = [field.name for field in schema if field.name != "id" and not pt.is_floating(field.type)]
    return {"compression": "zstd", "use_dictionary": few}


def _read_jsonl(part: Path, names: Sequence[str]) -> pa.Table:
    with part.open("rb") as lines:
        rows = [orjson.loads(line) for line in lines]
    present = [name for name in names if rows and name in rows[0]]
    return pa.table({name: pa.array([row[name] for row in rows]) for name in present})


def _flat(table: pa.Table) -> pa.Table:
    """CSV has no nested or binary values: those become JSON or base64 text."""
    for i, column in enumerate(table.columns):
        if not (pt.is_nested(column.type) or _is_binary(column.type)):
            continue
        texts = (None if v is None else v if isinstance(v, str) else json.dumps(v, default=str) for v in _texts(column))
        table = table.set_column(i, table.column_names[i], pa.array(texts, pa.string()))
    return table


def _texts(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return [base64.b64encode(v).decode() if isinstance(v, bytes) else v for v in values]


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def _skip_record(source: BinaryIO) -> None:
    """Past the header; a quoted name may hold line breaks."""
    quotes = 0
    while line := source.readline():
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            return


def format_of(out: Path, asked: str | None) -> tuple[str, bool]:
    """(format, whether the output is one file) of an output argument."""
    by_name = SUFFIXES.get(out.suffix.lower())
    if out.suffix.lower() in _OTHER_FILES and not out.exists():
        raise JobError(f"--out {out} ends in {out.suffix}; a file must end in .parquet, .csv or .jsonl.")
    if out.is_dir() or by_name is None:
        return asked or "parquet", False
    if asked is not None and asked != by_name:
        raise JobError(f"--out {out} ends in {out.suffix}, but --format {asked} was given; leave one of them out.")
    return by_name, True


__all__ = ["FORMATS", "format_of", "merge", "read_columns", "write_table"]
