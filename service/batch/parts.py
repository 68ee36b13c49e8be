"""The job's directory: parts that appear whole, and a manifest that says which of them count.

    _manifest.jsonl    first line: the job and how it is cut; then one line a finished part
    part-00000.parquet ...
    _summary.json      written when the job stops, complete or not

A part is written aside and fsynced, named in the manifest with its sha256, and then renamed; a run that was killed
before the rename finds the file aside and puts it in its place. So no finished part is ever done again.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

from models.bundle import file_sha256
from models.staging import sync_directory
from service.batch.errors import JobError

try:
    import fcntl

    _lockable = True
except ImportError:  # not a POSIX system: nothing keeps two runs on one directory apart there
    _lockable = False

MANIFEST = "_manifest.jsonl"
SUMMARY = "_summary.json"
ITEMS = "_items.arrow"
_PART = re.compile(r"part-(\d{5,})\.(parquet|csv|jsonl)")
_OURS = re.compile(r"part-\d{5,}\.(parquet|csv|jsonl)|_manifest\.jsonl|_summary\.json|_items\.arrow|\..*\.tmp")
FORMAT = 1
WriteTo = Callable[[BinaryIO], object]


@dataclass(frozen=True)
class Plan:
    """What is computed (`identity`) and how it is cut; a resumed job keeps both."""

    identity: dict[str, Any]
    kind: str
    rows: int
    batch: int
    part_rows: int

    @property
    def n_parts(self) -> int:
        return -(-self.rows // self.part_rows)

    def span(self, part: int) -> tuple[int, int]:
        """The rows of a part."""
        return part * self.part_rows, min(self.rows, (part + 1) * self.part_rows)

    def name(self, part: int) -> str:
        return f"part-{part:05d}.{self.kind}"


@dataclass(frozen=True)
class Part:
    """A finished part, as the manifest names it."""

    index: int
    file: str
    rows: int
    bytes: int
    sha256: str
    counts: dict[str, Any] = field(default_factory=dict)


class PartStore:
    """One job's directory, locked for as long as it is open."""

    def __init__(self, folder: Path, handle: IO[bytes]) -> None:
        self.folder = folder
        self._handle = handle
        self.plan: Plan | None = None
        self.parts: dict[int, Part] = {}
        self._read()

    @classmethod
    @contextmanager
    def open(cls, folder: Path) -> Iterator["PartStore"]:
        """Open or create the directory; a second run on it is refused."""
        _check_folder(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = open(folder / MANIFEST, "ab+")  # noqa: SIM115 - closed below, the lock lives as long as it
        except OSError as fault:
            raise JobError(f"{folder} cannot be written ({fault.strerror}); choose another --out.") from fault
        with handle:
            _lock(handle, folder)
            store = cls(folder, handle)
            for stale in folder.glob(".*.tmp"):
                stale.unlink()
            try:
                yield store
            finally:
                if store.plan is None and folder.exists():
                    store.remove()

    def begin(self, plan: Plan) -> None:
        """Settle the job; everything an earlier one left here is removed first."""
        self.clear()
        self.plan = plan
        self._append({"record": "job", "format": FORMAT, **asdict(plan)})
        sync_directory(self.folder)

    def clear(self) -> None:
        """Forget every part, also on disk."""
        self._handle.truncate(0)
        self._sync()
        self.plan, self.parts = None, {}
        for path in self.folder.iterdir():
            if _PART.fullmatch(path.name) or path.name == SUMMARY:
                path.unlink()

    def remove(self) -> None:
        """Take the job's files away, and the directory where nothing else is in it."""
        self.plan, self.parts = None, {}
        for path in self.folder.iterdir():
            if _OURS.fullmatch(path.name):
                path.unlink()
        with suppress(OSError):
            self.folder.rmdir()

    def pending(self) -> list[int]:
        """The parts still to do, in order."""
        return [] if self.plan is None else [i for i in range(self.plan.n_parts) if i not in self.parts]

    def path(self, part: int) -> Path:
        return self.folder / self.parts[part].file

    def paths(self) -> list[Path]:
        return [self.path(i) for i in sorted(self.parts)]

    def add(self, index: int, rows: int, counts: dict[str, Any], content: WriteTo) -> Part:
        """Put a part in its place and into the manifest."""
        assert self.plan is not None
        path = self.folder / self.plan.name(index)
        with _aside(path, content) as (size, digest):
            part = Part(index, path.name, rows, size, digest, counts)
            self._append({"record": "part", **asdict(part)})
        self.parts[index] = part
        return part

    def _append(self, record: dict[str, Any]) -> None:
        self._handle.write(json.dumps(record, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._sync()

    def _sync(self) -> None:
        self._handle.flush()
        os.fsync(self._handle.fileno())

    def _read(self) -> None:
        """Take over what an earlier run finished; a torn last line is what a killed run leaves."""
        self._handle.seek(0)
        content = self._handle.read()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._handle.truncate(len(whole))
        for line in whole.splitlines():
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            record = json.loads(line)
            if record.pop("record") == "job":
                if record.pop("format") != FORMAT:
                    raise ValueError
                self.plan, self.parts = Plan(**record), {}
                return
            part = Part(**record)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise JobError(f"{self.folder / MANIFEST} is damaged; start over with --overwrite.") from None
        path = self.folder / part.file
        written = _temporary(path)
        if written.is_file() and file_sha256(written) == part.sha256:
            os.replace(written, path)
        if path.is_file() and path.stat().st_size == part.bytes:
            self.parts[part.index] = part


def write_atomic(path: Path, content: WriteTo) -> tuple[int, str]:
    """Write a file whole or not at all; the size and sha256 of what was written."""
    with _aside(path, content) as written:
        return written


@contextmanager
def _aside(path: Path, content: WriteTo) -> Iterator[tuple[int, str]]:
    """The content, durable, beside its place while the block runs, and in its place afterwards."""
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as sink:
            content(sink)
            sink.flush()
            os.fsync(sink.fileno())
        yield temporary.stat().st_size, file_sha256(temporary)
        os.replace(temporary, path)
    except OSError as fault:
        raise JobError(f"{path} cannot be written ({fault.strerror}); what was finished before is kept.") from fault
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync_directory(path.parent)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def write_json(path: Path, document: dict[str, Any]) -> None:
    """A small document, whole or not at all."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomic(path, lambda sink: sink.write(text.encode()))


def _check_folder(folder: Path) -> None:
    if folder.is_file():
        raise JobError(f"{folder} is a file; --out takes a folder, or a file that ends in .parquet, .csv or .jsonl.")
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    strange = next((path.name for path in folder.iterdir() if not _OURS.fullmatch(path.name)), None)
    if strange is not None:
        raise JobError(f"{folder} holds other files ({strange}); choose an empty or a new folder for --out.")


def _lock(handle: IO[bytes], folder: Path) -> None:
    if not _lockable:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise JobError(f"Another run is writing to {folder}; wait for it or choose another --out.") from None
