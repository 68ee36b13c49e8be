"""One array on disk, read a few rows at a time: memory-mapped where the bytes lie plain, streamed where they do not."""

import mmap
import os
import struct
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from models.data import files
from models.errors import DataError

_WINDOW = 32 << 20  # mapped pages are handed back every so many bytes, so that RSS does not grow with the file
Take = Callable[[int], NDArray[Any]]


@dataclass(frozen=True)
class ArrayFile:
    """Where an array lies: a `.npy` file (member None) or a member of an `.npz`.

    `offset` is the first byte of its data when the bytes lie uncompressed in a local file, else None.
    """

    path: str
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int | None
    fortran: bool = False

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def name(self) -> str:
        return self.path if self.member is None else f"{self.path} ({self.member.removesuffix('.npy')})"

    def reader(self, start: int) -> Take:
        """A function that returns the next n rows from row `start` on."""
        if self.offset is not None:
            return _mapped(self, start)
        if self.fortran:
            return _at_once(self, start)
        return _streamed(self, start)


def open_npy(path: str) -> ArrayFile:
    with files.open_binary(path) as handle:
        shape, fortran, dtype = _header(handle, path)
        offset = None if files.is_url(path) else handle.tell()
    array = ArrayFile(path, None, shape, dtype, offset, fortran)
    return array if offset is None else _whole(array, os.path.getsize(path) - offset)


def open_npz(path: str) -> dict[str, ArrayFile]:
    """The members of an `.npz` by name."""
    members: dict[str, ArrayFile] = {}
    try:
        with files.open_binary(path) as handle, zipfile.ZipFile(handle) as archive:
            for info in archive.infolist():
                if not info.filename.endswith(".npy"):
                    continue
                with archive.open(info) as stream:
                    shape, fortran, dtype = _header(stream, f"{path} ({info.filename.removesuffix('.npy')})")
                    header = stream.tell()
                plain = info.compress_type == zipfile.ZIP_STORED and not files.is_url(path)
                offset = _data_offset(handle, info) + header if plain else None
                name = info.filename.removesuffix(".npy")
                array = ArrayFile(path, info.filename, shape, dtype, offset, fortran)
                members[name] = _whole(array, info.file_size - header)
    except zipfile.BadZipFile as fault:
        raise DataError(f"{path} is no .npz archive ({fault}).") from fault
    return members


def chain(arrays: Iterable[ArrayFile], start: int) -> Take:
    """Read arrays one after the other as if they were one."""
    rest = list(arrays)
    while rest and start >= len(rest[0]):
        start -= len(rest.pop(0))
    left = len(rest[0]) - start if rest else 0
    read = rest[0].reader(start) if rest else None

    def take(n: int) -> NDArray[Any]:
        nonlocal left, read
        pieces: list[NDArray[Any]] = []
        while n > 0 and read is not None:
            step = min(n, left)
            if step:
                pieces.append(read(step))
            n, left = n - step, left - step
            if left == 0:
                rest.pop(0)
                read, left = (rest[0].reader(0), len(rest[0])) if rest else (None, 0)
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    return take


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except (ValueError, EOFError) as fault:
        raise DataError(f"{name} is no NumPy array ({fault}).") from fault
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are never unpickled; save numbers or strings instead.")
    if not shape:
        raise DataError(f"{name} is a single value; an array with one row an item is needed.")
    return shape, bool(fortran and len(shape) > 1), dtype


def _whole(array: ArrayFile, size: int) -> ArrayFile:
    """Refuse an array that was cut short at once, not where its last row is read; `size` is that of its data."""
    if size < int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize:
        raise DataError(f"{array.name} ends before its last row.")
    return array


def _data_offset(handle: IO[bytes], info: zipfile.ZipInfo) -> int:
    """The first byte of a stored member: behind its local header, whose name and extra lengths are its own."""
    handle.seek(info.header_offset)
    name, extra = struct.unpack("<26xHH", handle.read(30))
    return info.header_offset + 30 + int(name) + int(extra)


def _mapped(array: ArrayFile, start: int) -> Take:
    if 0 in array.shape:
        return lambda n: np.empty((n, *array.shape[1:]), array.dtype)
    order: Any = "F" if array.fortran else "C"
    mapped = np.memmap(array.path, array.dtype, "r", array.offset or 0, array.shape, order)
    view = np.asarray(mapped)
    pages: mmap.mmap | None = getattr(mapped, "_mmap", None)
    row = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    position, behind = start, start

    def take(n: int) -> NDArray[Any]:
        nonlocal position, behind
        rows = view[position : position + n]
        position += n
        if (position - behind) * row > _WINDOW:
            behind = position
            _forget(pages)
        return np.array(rows, order="C")

    return take


def _forget(pages: mmap.mmap | None) -> None:
    """Drop the pages from this process; they stay in the system's cache and come back when touched."""
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)


def _streamed(array: ArrayFile, start: int) -> Take:
    """Rows of a compressed member or a remote file, in order."""
    row = int(np.prod(array.shape[1:], dtype=np.int64)) * array.dtype.itemsize
    stream = _open_stream(array)
    _header(stream, array.name)
    if array.member is None:
        stream.seek(start * row, 1)
    else:
        _skip(stream, start * row)

    def take(n: int) -> NDArray[Any]:
        data = _read_exactly(stream, n * row, array.name)
        return np.frombuffer(data, array.dtype).reshape(n, *array.shape[1:])

    return take


def _open_stream(array: ArrayFile) -> IO[bytes]:
    handle: IO[bytes] = files.open_binary(array.path)
    if array.member is None:
        return handle
    archive = zipfile.ZipFile(handle)
    return archive.open(array.member)


def _skip(stream: IO[bytes], count: int) -> None:
    while count > 0:
        count -= len(stream.read(min(count, 1 << 20))) or count


def _read_exactly(stream: IO[bytes], count: int, name: str) -> bytes:
    parts: list[bytes] = []
    while count > 0:
        try:
            data = stream.read(count)
        except (zipfile.BadZipFile, EOFError, OSError) as fault:
            raise DataError(f"{name} is damaged ({fault}).") from fault
        if not data:
            raise DataError(f"{name} ends before its last row.")
        parts.append(data)
        count -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _at_once(array: ArrayFile, start: int) -> Take:
    """Column-major arrays that cannot be mapped scatter a row over the file, so they are read at once."""
    with _open_stream(array) as stream:
        data: NDArray[Any] = npy.read_array(stream, allow_pickle=False)
    position = start

    def take(n: int) -> NDArray[Any]:
        nonlocal position
        position += n
        return np.ascontiguousarray(data[position - n : position])

    return take
