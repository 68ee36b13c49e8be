"""Data behind a URL, through fsspec."""

import functools
import http.server
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data import load_arrays, open_source
from models.errors import DataError
from models.inputs import ImageInput, TensorInput

fsspec = pytest.importorskip("fsspec", reason="the extra `remote` is not installed")

SPEC = TensorInput(shape=(4,))
X = np.random.default_rng(3).normal(size=(11, 4)).astype(np.float32)
Y = np.arange(11) % 3


@pytest.fixture
def store(png: Callable[..., bytes]) -> Iterator[str]:
    fs = fsspec.filesystem("memory")
    root = "memory://airlock-test"
    with fs.open(f"{root}/a.npz", "wb") as sink:
        np.savez(sink, x=X, y=Y)
    with fs.open(f"{root}/plain.npy", "wb") as sink:
        np.save(sink, X)
    for i in range(2):
        table = pa.table({"x": X[i * 5 : i * 5 + 5].tolist(), "y": Y[i * 5 : i * 5 + 5]})
        with fs.open(f"{root}/table/{i}.parquet", "wb") as sink:
            pq.write_table(table, sink, row_group_size=2)
    for name in ("ant/1.png", "bee/2.png", "bee/.hidden.png"):
        with fs.open(f"{root}/photos/{name}", "wb") as sink:
            sink.write(png(1))
    yield root
    fs.rm(root, recursive=True)


def test_arrays_and_tables(store: str) -> None:
    for arg, rows in (("a.npz", 11), ("plain.npy", 11), ("table", 10), ("table/*.parquet", 10)):
        x, y = load_arrays(f"{store}/{arg}", SPEC)
        np.testing.assert_array_equal(x, X[:rows])
        if y is not None:
            np.testing.assert_array_equal(y, Y[:rows])
    (batch,) = open_source(f"{store}/a.npz", SPEC).batches(4, 5, 8)
    np.testing.assert_array_equal(batch.items[0].x, X[5:8])


def test_folders_of_images(store: str) -> None:
    source = open_source(f"{store}/photos", ImageInput(height=8, width=8, channels=1), classes=["ant", "bee"])
    (batch,) = source.batches(9)
    assert batch.ids == ["ant/1.png", "bee/2.png"]
    assert batch.y is not None
    assert batch.y.tolist() == [0, 1]
    assert not batch.faults
    fsspec.filesystem("memory").rm(f"{store}/photos/ant/1.png")
    (batch,) = source.batches(9)
    assert [fault.reason for fault in batch.faults.values()] == ["unreadable"]


def test_http(tmp_path: Path, png: Callable[..., bytes]) -> None:
    pytest.importorskip("aiohttp", reason="the extra `remote` is not installed")
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    (tmp_path / "1.png").write_bytes(png(1))
    handler = functools.partial(_Ranges, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        root = f"http://127.0.0.1:{server.server_port}"
        x, _ = load_arrays(f"{root}/a.npz", SPEC)
        np.testing.assert_array_equal(x, X)
        (tmp_path / "list.txt").write_text(f"{root}/1.png\n{root}/missing.png\n")
        (batch,) = open_source(tmp_path / "list.txt", ImageInput(height=8, width=8, channels=1)).batches(4)
        assert list(batch.faults) == [1]
        server.shutdown()


def test_a_server_without_ranges_is_refused_in_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp", reason="the extra `remote` is not installed")
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(DataError, match=r"range requests.* Download it first"):
            open_source(f"http://127.0.0.1:{server.server_port}/a.npz", SPEC)
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class _Ranges(_Quiet):
    """Serves byte ranges, as object stores do."""

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        path = Path(self.translate_path(self.path))
        if asked is None or not path.is_file():
            super().do_GET()
            return
        data = path.read_bytes()
        first, _, last = asked.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last or len(data)) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def end_headers(self) -> None:
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(DataError, match=r"s3:// needs a package .* pip install 'airlock-gate\[remote\]'"):
        open_source("s3://bucket/a.npz", SPEC)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be opened"):
        open_source("nonsense://bucket/a.npz", SPEC)
