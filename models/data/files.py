"""Files by path or URL: local ones directly, `s3://`, `gs://`, `http://` and the like through fsspec."""

import os
import re
from collections.abc import Iterator
from glob import glob
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlparse

from models.errors import DataError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_ESCAPED = re.compile(r"\\udc([89a-f][0-9a-f])")


def is_url(path: str) -> bool:
    return bool(_URL.match(path))


def suffix(path: str) -> str:
    """The lower-case extension; a URL's query does not count."""
    return PurePosixPath(urlparse(path).path if is_url(path) else path).suffix.lower()


def absolute(path: str) -> str:
    """A path that means the same in every working directory."""
    return path if is_url(path) else os.path.abspath(path)


def as_text(path: str) -> str:
    """A path as text that a table can hold: bytes of a name that are no UTF-8 are written out as escapes."""
    return path.encode("utf-8", "backslashreplace").decode()


def _from_text(path: str) -> str:
    return _ESCAPED.sub(lambda found: chr(0xDC00 + int(found[1], 16)), path)


def open_binary(path: str) -> BinaryIO:
    if not is_url(path):
        return open(path, "rb")
    fs, inner = _remote(path)
    handle: BinaryIO = fs.open(inner, "rb")
    return handle


def read_bytes(path: str) -> bytes:
    """A whole file; whatever a remote store raises becomes an OSError."""
    if not is_url(path):
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            if not os.path.exists(raw := _from_text(path)):
                raise
            return Path(raw).read_bytes()
    try:
        fs, inner = _remote(path)
        data: bytes = fs.cat_file(inner)
    except (DataError, OSError):
        raise
    except Exception as fault:  # each fsspec backend has exceptions of its own
        raise OSError(f"{path} cannot be read ({type(fault).__name__}: {fault})") from fault
    return data


def exists(path: str) -> bool:
    if is_url(path):
        fs, inner = _remote(path)
        return bool(fs.exists(inner))
    return os.path.exists(path)


def is_dir(path: str) -> bool:
    if is_url(path):
        fs, inner = _remote(path)
        return bool(fs.isdir(inner))
    return os.path.isdir(path)


def stamp(path: str) -> str:
    """Name, size and time of a file: cheap, and different when the file was replaced."""
    if not is_url(path):
        stat = os.stat(path)
        return f"{absolute(path)}:{stat.st_size}:{stat.st_mtime_ns}"
    fs, inner = _remote(path)
    info = fs.info(inner)
    tag = next((str(info[key]) for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime") if info.get(key)), "")
    return f"{path}:{info.get('size')}:{tag}"


def walk(folder: str, above: tuple[str, ...] = ()) -> Iterator[str]:
    """Every file below a folder in sorted order, hidden and underscored names left out.

    One directory's names are in memory at a time, never the whole tree. Links are followed, but not in circles.
    """
    if is_url(folder):
        fs, inner = _remote(folder)
        for name in sorted(name.removeprefix(inner).lstrip("/") for name in fs.find(inner)):
            if not any(_hidden(part) for part in name.split("/")):
                yield f"{folder.rstrip('/')}/{name}"
        return
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as entries:
        listed = sorted((entry.name, entry.is_dir()) for entry in entries if not _hidden(entry.name))
    for name, below in listed:
        path = os.path.join(folder, name)
        if below:
            yield from walk(path, (*above, real))
        else:
            yield path


def subfolders(folder: str) -> list[str]:
    """The names of the folders directly below one, sorted."""
    if is_url(folder):
        fs, inner = _remote(folder)
        below = (entry["name"].rstrip("/") for entry in fs.ls(inner, detail=True) if entry["type"] == "directory")
        return sorted(name for path in below if not _hidden(name := path.rsplit("/", 1)[-1]))
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not _hidden(entry.name))


def expand(pattern: str) -> list[str]:
    """The files a glob matches, sorted."""
    if is_url(pattern):
        root = pattern_root(pattern)
        above = _remote(root)[1]
        fs, inner = _remote(pattern)
        return [f"{root}/{name.removeprefix(above).lstrip('/')}" for name in sorted(fs.glob(inner))]
    return sorted(path for path in glob(pattern, recursive=True) if os.path.isfile(path))


def is_pattern(path: str) -> bool:
    return any(mark in path for mark in "*?[") and not (not is_url(path) and os.path.exists(path))


def pattern_root(pattern: str) -> str:
    """The folder above the first wildcard."""
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if any(mark in part for mark in "*?["))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")


def relative(path: str, folder: str) -> str:
    """`path` as seen from `folder`, with forward slashes: the id of an item in a folder."""
    head = folder.rstrip("/\\") + "/"
    text = path.replace(os.sep, "/") if not is_url(path) else path
    return text.removeprefix(head.replace(os.sep, "/") if not is_url(folder) else head)


def resolve(path: str, folder: str) -> str:
    """A path written in a list that lies in `folder`."""
    if is_url(path) or os.path.isabs(path) or not folder:
        return path
    return f"{folder.rstrip('/')}/{path}" if is_url(folder) else os.path.join(folder, path)


def parent(path: str) -> str:
    return path.rsplit("/", 1)[0] if is_url(path) else os.path.dirname(os.path.abspath(path))


def _hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _remote(path: str) -> tuple[Any, str]:
    scheme = path.split("://", 1)[0]
    try:
        import fsspec

        fs, inner = fsspec.core.url_to_fs(path)
    except ImportError as missing:
        raise DataError(
            f"{scheme}:// needs a package that is not installed ({missing}); pip install 'airlock-gate[remote]'."
        ) from missing
    except ValueError as unknown:
        raise DataError(f"{path} cannot be opened: {unknown}.") from unknown
    return fs, inner
