"""Array files and tables as data arguments: the same rows whatever the format, whatever the batch size."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data import OOD, UNLABELLED, Columns, Source, load_arrays, open_source
from models.errors import DataError
from models.inputs import ImageInput, TensorInput

SPEC = TensorInput(shape=(2, 3))
N = 23
X = np.random.default_rng(7).normal(size=(N, 2, 3)).astype(np.float32)
Y = np.arange(N) % 4 - 1
GROUP = np.array([f"g{i % 3}" for i in range(N)])
EXTRA = np.arange(N) * 0.5


def _npz(path: Path) -> None:
    np.savez(path, x=X, y=Y, group=GROUP, extra=EXTRA)


def _npz_compressed(path: Path) -> None:
    np.savez_compressed(path, x=X, y=Y, group=GROUP, extra=EXTRA)


def _npz_fortran(path: Path) -> None:
    np.savez(path, x=np.asfortranarray(X), y=Y, group=GROUP, extra=EXTRA)


def _columns(x: pa.Array) -> dict[str, pa.Array]:
    return {"x": x, "label": pa.array(Y), "group": pa.array(GROUP), "extra": pa.array(EXTRA)}


def _parquet_lists(path: Path) -> None:
    pq.write_table(pa.table(_columns(pa.array(X.tolist()))), path, row_group_size=5)


def _parquet_flat(path: Path) -> None:
    flat = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 6)
    pq.write_table(pa.table(_columns(flat)), path, row_group_size=7)


def _parquet_tensor(path: Path) -> None:
    pq.write_table(pa.table(_columns(pa.FixedShapeTensorArray.from_numpy_ndarray(X))), path, row_group_size=4)


def _arrow(path: Path) -> None:
    table = pa.table(_columns(pa.array(X.tolist(), pa.large_list(pa.large_list(pa.float64())))))
    with ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def _arrow_stream(path: Path) -> None:
    table = pa.table(_columns(pa.array(X.tolist())))
    with ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def _parquet_folder(path: Path) -> None:
    path.mkdir()
    table = pa.table(_columns(pa.array(X.tolist())))
    pq.write_table(table.slice(0, 10), path / "a.parquet", row_group_size=3)
    pq.write_table(table.slice(10), path / "b.parquet")
    (path / "_SUCCESS").touch()


FORMATS = {
    "a.npz": _npz, "compressed.npz": _npz_compressed, "fortran.npz": _npz_fortran, "lists.parquet": _parquet_lists,
    "flat.parquet": _parquet_flat, "tensor.parquet": _parquet_tensor, "lists.arrow": _arrow, "folder": _parquet_folder,
    "stream.arrow": _arrow_stream,
}  # fmt: skip


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    folder = tmp_path_factory.mktemp("formats")
    for name, write in FORMATS.items():
        write(folder / name)
    return {name: open_source(folder / name, SPEC) for name in FORMATS}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 30), start=st.integers(0, N), length=st.integers(0, N))
def test_batches_are_exact_slices(stored: dict[str, Source], name: str, size: int, start: int, length: int) -> None:
    stop = min(N, start + length)
    batches = list(stored[name].batches(size, start, stop))
    assert [len(batch) for batch in batches] == [min(size, stop - at) for at in range(start, stop, size)]
    rows = [i for batch in batches for i in range(batch.rows.start, batch.rows.start + len(batch))]
    assert rows == list(range(start, stop))
    for batch in batches:
        own = slice(batch.rows.start, batch.rows.start + len(batch))
        (items,) = batch.items
        np.testing.assert_array_equal(items.x, X[own])
        assert items.x.dtype == np.float32
        assert batch.y is not None
        np.testing.assert_array_equal(batch.y, Y[own])
        assert batch.rows.group is not None
        assert batch.rows.group.to_pylist() == GROUP[own].tolist()
        assert batch.rows.carried["extra"].to_pylist() == EXTRA[own].tolist()
        assert batch.ids == [str(i) for i in range(own.start, own.stop)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_source_survives_pickling(stored: dict[str, Source], name: str) -> None:
    copy: Source = pickle.loads(pickle.dumps(stored[name]))
    assert copy.fingerprint() == stored[name].fingerprint()
    assert sum(len(batch) for batch in copy.batches(9)) == N


def test_npy_and_globs(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", X[:9])
    np.save(tmp_path / "2.npy", np.asfortranarray(X[9:]))
    x, y = load_arrays(tmp_path / "*.npy", SPEC)
    np.testing.assert_array_equal(x, X)
    assert y is None
    assert open_source(tmp_path / "1.npy", SPEC).labelled is False


def test_one_npy_an_item(tmp_path: Path) -> None:
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", X[i])
    x, _ = load_arrays(tmp_path, SPEC)
    np.testing.assert_array_equal(x, X[:3])


def test_class_names_become_indices_and_strangers_ood(tmp_path: Path) -> None:
    names = np.array(["cat", "dog", "zebra", "", "1"])
    np.savez(tmp_path / "a.npz", x=X[:5], y=names)
    (batch,) = open_source(tmp_path / "a.npz", SPEC, classes=["dog", "cat"]).batches(8)
    assert batch.y is not None
    assert batch.y.tolist() == [1, 0, OOD, UNLABELLED, 1]
    assert batch.rows.names is not None
    assert batch.rows.names.to_pylist() == names.tolist()


def test_missing_labels_in_a_table(tmp_path: Path) -> None:
    table = pa.table({"x": X[:3].tolist(), "y": pa.array([1.0, None, -1.0])})
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = open_source(tmp_path / "a.parquet", SPEC).batches(8)
    assert batch.y is not None
    assert batch.y.tolist() == [1, UNLABELLED, OOD]
    with pytest.raises(DataError, match="1 of 3 items have no label"):
        load_arrays(tmp_path / "a.parquet", SPEC)


def test_labels_can_be_left_alone(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=Y)
    source = open_source(tmp_path / "a.npz", SPEC, columns=Columns(labels=False))
    assert not source.labelled
    assert next(source.batches(4)).rows.carried.column_names == ["y"]


def test_other_names_and_chosen_columns(tmp_path: Path) -> None:
    table = pa.table({"vec": X.reshape(N, 6).tolist(), "truth": Y, "site": GROUP, "key": EXTRA, "junk": EXTRA})
    pq.write_table(table, tmp_path / "a.parquet")
    columns = Columns(input="vec", label="truth", group="site", id="key", carry=())
    batch = next(open_source(tmp_path / "a.parquet", SPEC, columns=columns).batches(3))
    assert batch.ids == ["0", "0.5", "1"]
    assert batch.rows.group is not None
    assert batch.rows.group.to_pylist() == ["g0", "g1", "g2"]
    assert batch.rows.carried.column_names == []


def test_partitioned_folders_become_columns(tmp_path: Path) -> None:
    for site, part in (("north", X[:4]), ("south sea", X[4:7])):
        folder = tmp_path / f"group={site.replace(' ', '%20')}"
        folder.mkdir()
        pq.write_table(pa.table({"x": part.tolist()}), folder / "part.parquet")
    (batch,) = open_source(tmp_path, SPEC).batches(10)
    assert batch.rows.group is not None
    assert batch.rows.group.to_pylist() == ["north"] * 4 + ["south sea"] * 3


@settings(max_examples=40, deadline=None)
@given(bad=st.dictionaries(st.integers(0, 9), st.sampled_from(["nan", "inf", "short", "null"]), max_size=10))
def test_bad_rows_are_faults_and_the_others_stay(bad: dict[int, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    values: list[list[float] | None] = [row.reshape(-1).tolist() for row in X[:10].astype(float)]
    for i, what in bad.items():
        row = values[i]
        assert row is not None
        values[i] = {"nan": [float("nan"), *row[1:]], "inf": [*row[:5], 1e300], "short": row[:4], "null": None}[what]
    path = tmp_path_factory.mktemp("bad") / "a.parquet"
    pq.write_table(pa.table({"x": pa.array(values, pa.list_(pa.float64()))}), path)
    (batch,) = open_source(path, SPEC).batches(10)
    reasons = {i: fault.reason for i, fault in batch.faults.items()}
    assert reasons == {i: "not_finite" if what in ("nan", "inf") else "unreadable" for i, what in bad.items()}
    good = [i for i in range(10) if i not in bad]
    seen = np.concatenate([items.positions for items in batch.items]) if batch.items else np.empty(0)
    assert sorted(seen.tolist()) == good
    for items in batch.items:
        np.testing.assert_array_equal(items.x, X[items.positions])


def test_open_sizes_give_one_group_a_shape(tmp_path: Path) -> None:
    rows = [[1.0], [1.0, 2.0], [3.0], [4.0, 5.0]]
    pq.write_table(pa.table({"x": rows}), tmp_path / "a.parquet")
    (batch,) = open_source(tmp_path / "a.parquet", TensorInput(shape=(None,))).batches(10)
    assert [(items.positions.tolist(), items.x.shape) for items in batch.items] == [([0, 2], (2, 1)), ([1, 3], (2, 2))]
    assert not batch.faults


def test_pixels_in_arrays(tmp_path: Path) -> None:
    spec = ImageInput(height=4, width=4, channels=1)
    pixels = np.arange(48, dtype=np.int64).reshape(3, 4, 4)
    np.savez(tmp_path / "a.npz", x=pixels)
    x, _ = load_arrays(tmp_path / "a.npz", spec)
    assert x.dtype == np.uint8
    np.testing.assert_array_equal(x[..., 0], pixels)


_WRONG = {
    "shape.npy": r"float32 items of shape \[2×3\]",
    "text.npy": "float32 items.*but <U1 values arrived",
    "object.npy": "never unpickled",
    "names.npz": "holds a, b; the inputs must be called x",
    "length.npz": r"\(y\) has shape \[4\]; one value for each of the 23 items",
    "far.npz": "The label 32 arrived; classes count from 0 to 2, and −1 means out of distribution",
    "half.npz": "The label -0.5 arrived; integers or class names",
    "broken.npz": "is no .npz archive",
    "broken.parquet": "cannot be read as parquet",
    "broken.arrow": "broken.arrow cannot be read",
    "short.arrow": "short.arrow cannot be read",
    "twice.parquet": "has two columns called 'k'; rename one of them",
    "some.dat": "it takes .npy, .npz",
    "empty": "holds no image, array or table",
    "nowhere.npz": "does not exist",
    "two.parquet": "No column .* among a, b; .*--column",
    "none.parquet": "No column",
    "*.nothing": "matches no array, table or image",
    "[fn]*": "files of different kinds",
}


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    np.save(folder / "shape.npy", np.zeros((4, 5), np.float32))
    np.save(folder / "text.npy", np.array([["a"]]))
    np.save(folder / "object.npy", np.array([None, 1], object), allow_pickle=True)
    np.savez(folder / "names.npz", a=X, b=X)
    np.savez(folder / "length.npz", x=X, y=Y[:4])
    np.savez(folder / "far.npz", x=X, y=Y + 30)
    np.savez(folder / "half.npz", x=X, y=Y + 0.5)
    (folder / "broken.npz").write_bytes(b"PK no")
    (folder / "broken.parquet").write_bytes(b"PAR1 no")
    (folder / "broken.arrow").write_bytes(b"no arrow at all")
    _arrow_stream(folder / "short.arrow")
    (folder / "short.arrow").write_bytes((folder / "short.arrow").read_bytes()[:-300])
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["k", "k"]), folder / "twice.parquet")
    (folder / "some.dat").write_bytes(b"?")
    (folder / "empty").mkdir()
    pq.write_table(pa.table({"a": X.tolist(), "b": X.tolist()}), folder / "two.parquet")
    pq.write_table(pa.table({"a": [1, 2]}), folder / "none.parquet")
    return folder


@pytest.mark.parametrize("arg", _WRONG)
def test_one_sentence_says_what_is_wrong(arg: str, wrong: Path) -> None:
    with pytest.raises(DataError, match=_WRONG[arg]) as refusal:
        load_arrays(str(wrong / arg), SPEC, classes=["a", "b", "c"])
    assert "\n" not in str(refusal.value)


def test_the_fingerprint_follows_the_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    before = open_source(tmp_path / "a.npy", SPEC).fingerprint()
    assert open_source(tmp_path / "a.npy", SPEC).fingerprint() == before
    np.save(tmp_path / "a.npy", X[:5])
    assert open_source(tmp_path / "a.npy", SPEC).fingerprint() != before


_RSS = """
import sys, psutil, numpy as np
from models.data import open_source
from models.inputs import TensorInput
me = psutil.Process()
source = open_source(sys.argv[1], TensorInput(shape=(256,)))
next(source.batches(64))
base = top = me.memory_info().rss
total = 0.0
for batch in source.batches(1024):
    total += float(batch.items[0].x.sum())
    top = max(top, me.memory_info().rss)
print(int((top - base) / 2**20), total)
"""


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed.npz", "parquet"])
def test_reading_takes_no_memory_of_the_size_of_the_file(kind: str, tmp_path: Path) -> None:
    x = np.zeros((200_000, 256), np.float32)
    x[:, 0] = 1
    path = tmp_path / f"big.{kind}"
    if kind == "npy":
        np.save(path, x)
    elif kind == "npz":
        np.savez(path, x=x)
    elif kind == "compressed.npz":
        np.savez_compressed(path, x=x)
    else:
        column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 256)
        pq.write_table(pa.table({"x": column}), path)
    done = subprocess.run([sys.executable, "-c", _RSS, str(path)], capture_output=True, text=True, check=True)
    grown, total = done.stdout.split()
    assert float(total) == len(x)
    assert int(grown) < x.nbytes / 2**20 / 2
