"""The directory in which the workers of one server meet: who is alive, who leads, what is counted.

All locks are the kernel's (`flock`): they vanish with their owner, so a killed worker never leaves one behind.
"""

import fcntl
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.errors import ModelsError
from service.monitoring.board import Board, allocate, read_board
from service.monitoring.layout import Layout
from service.monitoring.slots import Slot, read_slots

logger = logging.getLogger("airlock.monitor")


_ROOM = 4 * 1024 * 1024  # bytes on disk that the boards and slots of a server take, and some to spare


class StationError(ModelsError):
    """The state directory cannot be used."""


class Station:
    """One worker's seat in the meeting directory."""

    def __init__(self, directory: Path, layout: Layout, *, server: str) -> None:
        """Join the workers of `server`; the first one decides the layout, the others take it over."""
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._alive = _open_lock(directory / "alive.lock")
            starting = _open_lock(directory / "start.lock")
        except OSError as fault:
            raise _unusable(directory, fault) from fault
        self._leader: int | None = None
        try:
            fcntl.flock(starting, fcntl.LOCK_EX)
            self.layout = self._first(layout, server) if self._nobody_else() else self._following(server)
            fcntl.flock(self._alive, fcntl.LOCK_SH)
            self.slot = Slot.claim(directory, self.layout)
        except OSError as fault:
            os.close(self._alive)
            raise _unusable(directory, fault) from fault
        finally:
            os.close(starting)

    def _nobody_else(self) -> bool:
        try:
            fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _first(self, layout: Layout, server: str) -> Layout:
        """A new server: slots that count other things than it does are of no use to it."""
        known = self._read_layout()
        if known is None or known["signature"] != layout.signature:
            for path in self.directory.glob("slot-*"):
                path.unlink()
        board = Board(self.directory / "layout")
        board.write({"server": server, "signature": layout.signature, "layout": layout.document()})
        board.close()
        return layout

    def _following(self, server: str) -> Layout:
        known = self._read_layout()
        if known is None or known["server"] != server:
            os.close(self._alive)
            raise _taken(self.directory)
        return Layout.from_document(known["layout"])

    def _read_layout(self) -> dict[str, Any] | None:
        return read_board(self.directory / "layout")

    def lead(self) -> bool:
        """Whether this worker is the one that evaluates the monitors; takes the seat when it is free."""
        if self._leader is not None:
            return True
        lock = _open_lock(self.directory / "leader.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._leader = lock
        return True

    def counts(self) -> dict[str, NDArray[np.float64]]:
        """The counters of every worker, by slot."""
        return read_slots(self.directory, self.layout)

    def leave(self) -> None:
        """Give up the seat, the slot and, if held, the lead."""
        self.slot.close()
        for lock in (self._leader, self._alive):
            if lock is not None:
                os.close(lock)
        self._leader = None


def check_usable(directory: Path) -> None:
    """Refuse a directory in which the workers could not meet, before any of them starts."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        os.close(_open_lock(directory / "alive.lock"))
        if not (directory / "state").exists():  # else the room is taken already
            with tempfile.TemporaryFile(dir=directory) as probe:
                allocate(probe.fileno(), _ROOM)
    except OSError as fault:
        raise _unusable(directory, fault) from fault


def await_free(directory: Path, seconds: float) -> None:
    """Wait until no worker of another server is in the directory; a killed server's workers leave after a while."""
    began = time.monotonic()
    told = False
    while _occupied(directory / "alive.lock"):
        if time.monotonic() - began > seconds:
            raise _taken(directory)
        if not told:
            logger.info("the state directory is in use; waiting %g s for the workers of a former server", seconds)
            told = True
        time.sleep(0.2)


def _occupied(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR)
    except OSError:
        return False  # nobody was here yet, or the directory cannot be written, which the workers report
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _unusable(directory: Path, fault: OSError) -> StationError:
    return StationError(f"the state directory {directory.parent} cannot be written: {fault.strerror}")


def _taken(directory: Path) -> StationError:
    return StationError(
        f"the state directory {directory.parent} is in use by another server; "
        "give every server a state directory of its own"
    )


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
