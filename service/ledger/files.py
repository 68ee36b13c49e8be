"""Exported decisions as files: JSON lines, CSV or Parquet, whole or not at all, in bounded memory."""

import csv
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from service.ledger.engine import LedgerError

COLUMNS = {
    "id": "string", "request_id": "string", "item": "int64", "time": "float64", "bundle": "string", "policy": "int64",
    "prediction": "int64", "s_id": "float64", "s_ood": "float64", "decision": "string", "reason": "string",
    "audit": "bool", "propensity": "float64", "label": "int64", "is_ood": "bool", "wrong": "bool",
}  # fmt: skip
_CHUNK = 10_000

Row = dict[str, Any]
Advance = Callable[[int], None]


def write_rows(path: Path, rows: Iterable[Row], advance: Advance) -> int:
    """Write rows in the format that the name's ending says; returns how many."""
    writers = {".jsonl": _write_jsonl, ".csv": _write_csv, ".parquet": _write_parquet}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise LedgerError(f"decisions are exported as .jsonl, .csv or .parquet; {path.name!r} arrived")
    with _whole(path) as aside:
        return writer(aside, _chunks(rows), advance)


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as one compressed .npz file."""
    with _whole(path) as aside, open(aside, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A neighbour to write to, which takes the path's place once it is complete and on disk."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield aside
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as fault:
        raise LedgerError(f"{path} cannot be written: {fault.strerror}") from fault
    finally:
        with suppress(OSError):
            aside.unlink()


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    source = iter(rows)
    while chunk := list(islice(source, _CHUNK)):
        yield chunk


def _write_jsonl(path: Path, chunks: Iterator[list[Row]], advance: Advance) -> int:
    written = 0
    with open(path, "wb") as file:
        for chunk in chunks:
            file.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in chunk)
            written += len(chunk)
            advance(len(chunk))
    return written


def _write_csv(path: Path, chunks: Iterator[list[Row]], advance: Advance) -> int:
    written = 0
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for chunk in chunks:
            table.writerows(chunk)
            written += len(chunk)
            advance(len(chunk))
    return written


def _write_parquet(path: Path, chunks: Iterator[list[Row]], advance: Advance) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    written = 0
    with pq.ParquetWriter(path, schema) as file:
        for chunk in chunks:
            file.write_table(pa.Table.from_pylist(chunk, schema=schema))
            written += len(chunk)
            advance(len(chunk))
    return written
