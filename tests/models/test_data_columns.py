"""Ids, labels and carried columns in every form that files hold them, and files that were cut short."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.data import Batch, Columns, open_source
from models.errors import DataError
from models.inputs import TensorInput

SPEC = TensorInput(shape=(3,))
N = 5
X = np.random.default_rng(3).normal(size=(N, 3)).astype(np.float32)


def _one(path: Path, **columns: str) -> Batch:
    (batch,) = open_source(path, SPEC, classes=["a", "b", "c"], columns=Columns(**columns)).batches(100)
    return batch


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_byte_order_of_another_machine(save: object, tmp_path: Path) -> None:
    members = {"x": X.astype(">f4"), "y": np.array([0, 1, 2, -1, 0], ">i4"), "id": np.array(list("vwxyz"), ">U3")}
    save(tmp_path / "a.npz", **members, extra=np.arange(N, dtype=">f8"))  # type: ignore[operator]
    batch = _one(tmp_path / "a.npz")
    np.testing.assert_array_equal(batch.items[0].x, X)
    assert batch.y is not None
    assert batch.y.tolist() == [0, 1, 2, -1, 0]
    assert batch.ids == list("vwxyz")
    assert batch.rows.carried["extra"].to_pylist() == [0, 1, 2, 3, 4]


def test_members_that_no_table_can_hold(tmp_path: Path) -> None:
    phases = np.exp(1j * np.arange(N))
    np.savez(tmp_path / "a.npz", x=X, phase=phases, name=np.array([b"a", b"\xff", b"c", b"d", b"e"]))
    batch = _one(tmp_path / "a.npz")
    assert batch.rows.carried.column_names == ["name"]
    assert batch.rows.carried["name"].to_pylist() == ["a", "\\xff", "c", "d", "e"]
    with pytest.raises(DataError, match=r"\(phase\) holds complex128 values; numbers, text or times are allowed\."):
        _one(tmp_path / "a.npz", id="phase")


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_file_cut_short_is_refused_before_anything_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    np.save(tmp_path / "whole.npy", X)
    short = (tmp_path / "whole.npy").read_bytes()[:-4]
    if name == "x.npy":
        path.write_bytes(short)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", short)
    with pytest.raises(DataError, match="ends before its last row"):
        open_source(path, SPEC)


@pytest.mark.parametrize(
    ("ids", "texts"),
    [
        (pa.array([b"a", b"\xff\x00", b"", None, b"\xc3\xa9"]), ["a", "\\xff\x00", "", None, "é"]),
        (pa.array([b"\x00\xff"] * 4 + [None], pa.binary(2)), ["00ff"] * 4 + [None]),
        (pa.array([f"{i}" for i in range(N)], pa.large_string()), list("01234")),
        (pa.array([7, 2**63, 0, None, 1], pa.uint64()), ["7", "9223372036854775808", "0", None, "1"]),
        (pa.array(list("aabba")).dictionary_encode(), list("aabba")),
    ],
    ids=["bytes", "fixed bytes", "large text", "numbers", "dictionary"],
)
def test_ids_of_any_simple_type_become_text(ids: pa.Array, texts: list[str | None], tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array(X.tolist()), "id": ids}), tmp_path / "a.parquet")
    assert _one(tmp_path / "a.parquet").rows.ids.to_pylist() == texts


@pytest.mark.parametrize("role", ["id", "group"])
def test_a_nested_column_cannot_be_an_id_or_a_group(role: str, tmp_path: Path) -> None:
    table = pa.table({"x": pa.array(X.tolist()), role: pa.array([[i] for i in range(N)])})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=rf"column '{role}' of .* cannot be written as text; .* --{role}-column\."):
        open_source(tmp_path / "a.parquet", SPEC, columns=Columns(input="x"))


@pytest.mark.parametrize("asked", [{"label": "y"}, {"id": "key"}, {"group": "g"}, {"carry": ("z",)}, {"input": "x"}])
def test_a_column_that_an_array_file_has_not_is_refused(asked: dict[str, Any], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    (name,) = asked.get("carry", list(asked.values()))
    with pytest.raises(DataError, match=f"is one array and has no member '{name}'"):
        open_source(tmp_path / "a.npy", SPEC, columns=Columns(**asked))
    np.savez(tmp_path / "a.npz", w=X)
    with pytest.raises(DataError, match=f"has no member '{name}'; it holds w"):
        open_source(tmp_path / "a.npz", SPEC, columns=Columns(**asked))
