"""Counters that all workers of a server share: one small memory-mapped file a worker, which outlives the worker.

A worker claims the first slot whose owner is gone and goes on from the counts it finds there, so totals survive a
killed worker and a restarted server, and the number of files is the number of workers. Nobody but its owner writes to
a slot. The vector is kept twice: a new one is written beside the old one and then a sequence number is raised, so
that a reader always finds a whole vector, also after kill -9.
"""

import fcntl
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from service.monitoring.board import allocate
from service.monitoring.layout import Layout

Array = NDArray[np.float64]

_HEADER = 64  # bytes: 16 of signature, then the sequence number
_SEQUENCE = 16
_READ_ATTEMPTS = 100
_MAX_SLOTS = 4096


class Slot:
    """The counters of this worker: change `values` in place, then `publish`."""

    def __init__(self, path: Path, descriptor: int, layout: Layout) -> None:
        self.path = path
        self.layout = layout
        self._descriptor = descriptor
        self._map = mmap.mmap(descriptor, _file_size(layout))
        self._sequence, self._copies = _views(self._map, layout)
        if self._map[:_SEQUENCE] != layout.signature.encode():
            self._map[: len(self._map)] = bytes(len(self._map))
            self._map[:_SEQUENCE] = layout.signature.encode()
        self.values = self._copies[int(self._sequence[0]) & 1, 1:-1].copy()
        self.fields = {name: self.values[part] for name, part in layout.fields.items()}

    @classmethod
    def claim(cls, directory: Path, layout: Layout) -> "Slot":
        """The first slot that no living process owns."""
        for number in range(_MAX_SLOTS):
            path = directory / f"slot-{number:03d}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            try:
                allocate(descriptor, _file_size(layout))
            except OSError:
                os.close(descriptor)
                raise
            return cls(path, descriptor, layout)
        raise OSError(f"no free counter slot in {directory}")

    def publish(self) -> None:
        """Make the present values the ones that others read."""
        following = int(self._sequence[0]) + 1
        copy = self._copies[following & 1]
        copy[0] = following
        copy[1:-1] = self.values
        copy[-1] = following
        self._sequence[0] = following

    def close(self) -> None:
        """Give the slot up to the next worker; the counts stay."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # the map holds a duplicate that would keep the lock
        os.close(self._descriptor)


def read_slots(directory: Path, layout: Layout) -> dict[str, Array]:
    """The published vector of every slot of this layout, by the slot's name."""
    found = {}
    for path in sorted(directory.glob("slot-*")):
        values = _read(path, layout)
        if values is not None:
            found[path.name] = values
    return found


def _read(path: Path, layout: Layout) -> Array | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    for _ in range(_READ_ATTEMPTS):
        if len(content) != _file_size(layout) or content[:_SEQUENCE] != layout.signature.encode():
            return None
        sequence, copies = _views(content, layout)
        copy = copies[int(sequence[0]) & 1]
        # The writer may have come round while the file was read: both ends of a whole copy carry its number.
        if copy[0] == copy[-1] == sequence[0]:
            values: Array = copy[1:-1].copy()
            return values
        content = path.read_bytes()
    return None


def _views(buffer: bytes | mmap.mmap, layout: Layout) -> tuple[NDArray[np.int64], Array]:
    sequence = np.frombuffer(buffer, dtype=np.int64, count=1, offset=_SEQUENCE)
    copies = np.frombuffer(buffer, dtype=np.float64, offset=_HEADER).reshape(2, layout.size + 2)
    return sequence, copies


def _file_size(layout: Layout) -> int:
    return _HEADER + 2 * 8 * (layout.size + 2)
