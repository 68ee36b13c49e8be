"""A document that one process replaces often and others read: in place, without a rename, whole at any moment.

The content is kept twice. A new one is written over the older copy, with a checksum, and then the copy with the higher
number is the valid one: a reader that is too quick, a writer that is killed and a torn page all leave the other copy.
"""

import mmap
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

_HALF = 1 << 18
_HEADER = struct.Struct("<QII")  # number, length, checksum


def allocate(descriptor: int, size: int) -> None:
    """Give a file that will be mapped its size, with room on the disk for all of it.

    A mapped page without room is found out about at the first write to it, by a signal that kills the process; here
    a full disk is an OSError.
    """
    os.ftruncate(descriptor, size)
    if hasattr(os, "posix_fallocate"):  # macOS has none
        os.posix_fallocate(descriptor, 0, size)


class Board:
    """One such document, for its single writer."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            allocate(descriptor, 2 * _HALF)
            self._map = mmap.mmap(descriptor, 2 * _HALF)
        finally:
            os.close(descriptor)
        self._number = max((number for number, _ in _copies(self._map)), default=0)

    def write(self, document: dict[str, Any], *, durable: bool = False) -> None:
        """Replace the document; on disk when this returns if asked to be durable."""
        content = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        if len(content) > _HALF - _HEADER.size:
            raise ValueError(f"a document of {len(content)} bytes does not fit on a board")
        self._number += 1
        start = _HALF * (self._number & 1)
        body = start + _HEADER.size
        self._map[body : body + len(content)] = content
        self._map[start:body] = _HEADER.pack(self._number, len(content), zlib.crc32(content))
        if durable:
            self._map.flush()

    def close(self) -> None:
        """Let go of it; the document stays."""
        self._map.close()


def read_board(path: Path) -> dict[str, Any] | None:
    """The last whole document; None when there is none, which means: start afresh."""
    with suppress(OSError):
        copies = _copies(path.read_bytes())
        if copies:
            document: dict[str, Any] = orjson.loads(max(copies)[1])
            return document
    return None


def _copies(content: "bytes | mmap.mmap") -> list[tuple[int, bytes]]:
    """The valid copies with their numbers."""
    found = []
    for start in (0, _HALF):
        if len(content) < start + _HALF:
            continue
        number, length, checksum = _HEADER.unpack(content[start : start + _HEADER.size])
        body = content[start + _HEADER.size : start + _HEADER.size + length] if length <= _HALF else b""
        if number and zlib.crc32(body) == checksum:
            found.append((number, body))
    return found
