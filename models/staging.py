"""A directory that appears whole under its name: filled aside, put in place in one step."""

import ctypes
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl

    _lockable = True
except ImportError:  # not a POSIX system: nothing tells what was left behind from what is in use
    _lockable = False

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux' renameat2


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """An empty directory that takes the place of `target` when the block ends well; what stood there is removed.

    It is locked while it is filled. One that can be locked by somebody else belongs to a process that was killed, and
    is removed once a later one stands.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with _locked(staging):
            yield staging
            staging.chmod(0o755)
            sync_directory(staging)
            _put(staging, target)
            sync_directory(target.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _remove_left_behind(target)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    with suppress(OSError):  # not every platform can open a directory
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _put(staging: Path, target: Path) -> None:
    """`staging` under the name of `target`; what stood there is then found under the name of `staging`."""
    if not target.exists():
        staging.rename(target)
        return
    if _exchange(staging, target):
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    old.rmdir()
    target.rename(old)
    try:
        staging.rename(target)
    except OSError:
        old.rename(target)
        raise
    old.rename(staging)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step, so that at no moment either is missing; False where the system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):
        return False
    paths = (os.fsencode(path) for path in (one, other))
    return bool(renameat2(_AT_FDCWD, next(paths), _AT_FDCWD, next(paths), _RENAME_EXCHANGE) == 0)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold a directory for as long as the block runs; the lock goes with the process, however that ends."""
    if not _lockable:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _remove_left_behind(target: Path) -> None:
    """Remove what killed processes left beside `target`.

    An empty directory is left alone: it may be one that was made an instant ago and is not locked yet.
    """
    if not _lockable:
        return
    ours = re.compile(rf"\.{re.escape(target.name)}\.(old\.)?[a-z0-9_]{{8}}")
    for path in target.parent.iterdir():
        if ours.fullmatch(path.name) is None or path.is_symlink() or not path.is_dir() or not any(path.iterdir()):
            continue
        with suppress(OSError), _locked(path):
            shutil.rmtree(path, ignore_errors=True)
