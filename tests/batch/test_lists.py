"""Folders, globs and lists of images as data arguments."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from PIL import Image

from models.data import OOD, UNLABELLED, Batch, Columns, load_arrays, open_source
from models.errors import DataError
from models.inputs import ImageInput, TensorInput

SPEC = ImageInput(height=8, width=8, channels=1)
CLASSES = ["ant", "bee", "cat"]
Png = Callable[..., bytes]


def _pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))[..., None]


def _one(arg: object, **options: object) -> Batch:
    (batch,) = open_source(arg, SPEC, **options).batches(100)  # type: ignore[arg-type]
    return batch


def test_a_folder_is_read_in_order_with_sub_folders_as_classes(photos: Path, png: Png) -> None:
    batch = _one(photos, classes=CLASSES)
    assert batch.ids[:6] == ["ant/0.png", "ant/1.png", "ant/2.png", "ant/3.png", "ant/4.png", "ant/broken.jpg"]
    assert len(batch) == 22
    assert batch.y is not None
    assert batch.y.tolist() == [0] * 6 + [1] * 6 + [2] * 5 + [OOD] * 5
    broken = {batch.ids[i]: fault.reason for i, fault in batch.faults.items()}
    assert broken == {"ant/broken.jpg": "unreadable", "bee/text.png": "unreadable"}
    (items,) = batch.items
    np.testing.assert_array_equal(items.x[0], _pixels(png(0)))
    np.testing.assert_array_equal(items.x[-1], _pixels(png(34)))


def test_sub_folders_that_are_no_class_are_no_labels(photos: Path) -> None:
    assert open_source(photos, SPEC, classes=["x", "y", "z"]).labelled is False
    assert open_source(photos, SPEC, classes=CLASSES, columns=Columns(labels=False)).labelled is False


def test_sub_folders_are_the_classes_where_none_are_known(photos: Path) -> None:
    source = open_source(photos, SPEC)
    assert source.classes == ("ant", "bee", "cat", "zebra")
    batch = next(source.batches(100))
    assert batch.y is not None
    assert batch.y.tolist() == [0] * 6 + [1] * 6 + [2] * 5 + [3] * 5


def test_numbered_sub_folders_are_indices(tmp_path: Path, png: Png) -> None:
    for name in ("0", "2", "-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(png(1))
    batch = _one(tmp_path, classes=CLASSES)
    assert batch.y is not None
    assert dict(zip(batch.ids, batch.y.tolist(), strict=True)) == {"-1/a.png": OOD, "0/a.png": 0, "2/a.png": 2}


def test_a_glob_takes_what_it_matches(photos: Path) -> None:
    batch = _one(photos / "*" / "[0-2].png")
    assert len(batch) == 12
    assert batch.ids[0] == "ant/0.png"
    assert batch.y is None


def test_one_image_is_data_too(photos: Path) -> None:
    assert _one(photos / "cat" / "3.png").ids == ["3.png"]


@pytest.fixture
def listed(photos: Path) -> list[dict[str, object]]:
    return [
        {"path": "ant/0.png", "label": "ant", "site": "north, 1"},
        {"path": "zebra/1.png", "label": "zebra", "site": 'the "south"'},
        {"path": "nowhere.png", "label": None, "site": None},
    ]


def _write_list(path: Path, listed: list[dict[str, object]]) -> Path:
    if path.suffix == ".csv":
        table = pa.Table.from_pylist(listed)
        pa.csv.write_csv(table, path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in listed) + "\n")
    else:
        pq.write_table(pa.Table.from_pylist(listed), path)
    return path


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.parquet"])
def test_lists_resolve_paths_beside_them_and_keep_columns(
    name: str, photos: Path, listed: list[dict[str, object]], png: Png
) -> None:
    batch = _one(_write_list(photos / name, listed), classes=CLASSES, columns=Columns(id="path"))
    assert batch.ids == ["ant/0.png", "zebra/1.png", "nowhere.png"]
    assert batch.y is not None
    assert batch.y.tolist() == [0, OOD, UNLABELLED]
    assert batch.rows.carried["site"].to_pylist()[:2] == ["north, 1", 'the "south"']
    assert list(batch.faults) == [2]
    assert "No such file" in batch.faults[2].message
    np.testing.assert_array_equal(batch.items[0].x[1], _pixels(png(31)))


@pytest.mark.parametrize(
    "text",
    [
        "ant/0.png\n\n# a comment\ncat/1.png\n",
        "path,weight\nant/0.png,1\ncat/1.png,2\n",
        '{"path": "ant/0.png"}\n{"path": "cat/1.png"}\n',
    ],
)
def test_standard_input(text: str, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    assert _one("-", stdin=io.StringIO(text)).ids == ["ant/0.png", "cat/1.png"]


def test_a_text_file_is_a_list(photos: Path) -> None:
    (photos / "list.txt").write_text("cat/1.png\nbee/2.png")
    assert _one(photos / "list.txt").ids == ["cat/1.png", "bee/2.png"]


def test_encoded_images_in_a_table(tmp_path: Path, png: Png) -> None:
    data = [png(1), b"no", None, png(2)]
    pq.write_table(pa.table({"image": pa.array(data, pa.binary())}), tmp_path / "bytes.parquet")
    structs = [{"bytes": value, "path": None} for value in data[:2]] + [None, {"bytes": None, "path": "2.png"}]
    (tmp_path / "2.png").write_bytes(png(2))
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    pq.write_table(pa.table({"image": pa.array(structs, kind)}), tmp_path / "structs.parquet")
    for name in ("bytes", "structs"):
        batch = _one(tmp_path / f"{name}.parquet")
        assert sorted(batch.faults) == [1, 2]
        assert batch.items[0].positions.tolist() == [0, 3]
        np.testing.assert_array_equal(batch.items[0].x, np.stack([_pixels(png(1)), _pixels(png(2))]))


def test_a_spilled_list_is_the_same_list(photos: Path, tmp_path: Path) -> None:
    held = open_source(photos, SPEC, classes=CLASSES)
    spilled = open_source(photos, SPEC, classes=CLASSES, spill=tmp_path / "items.arrow")
    assert (tmp_path / "items.arrow").exists()
    assert spilled.fingerprint() == held.fingerprint()
    assert [b.ids for b in spilled.batches(5, 3, 17)] == [b.ids for b in held.batches(5, 3, 17)]


def test_the_fingerprint_follows_the_list(photos: Path, png: Png) -> None:
    before = open_source(photos, SPEC).fingerprint()
    (photos / "cat" / "new.png").write_bytes(png(3))
    assert open_source(photos, SPEC).fingerprint() != before


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.csv", "name,label\nx,1\n", "a column called path must name the files"),
        ("a.csv", "path,label\nx,1,2\n", "more values than the header has names"),
        ("a.csv", "path;label\nx;1\n", "must be separated by commas"),
        ("a.csv", "label\tpath\n1\tx\n", "must be separated by commas"),
        ("a.csv", "", "lists no file"),
        ("a.jsonl", '{"path": "x"}\n[1]\n', "line 2 is no JSON object"),
        ("a.jsonl", '{"path": "x"\n', "line 1 is no JSON"),
        ("a.jsonl", '{"name": "x"}\n', "must hold a path column"),
        ("a.jsonl", '{"path": "\\ud800"}\n', "lines 1 to 1"),
    ],
)
def test_a_bad_list_is_refused_in_one_sentence(name: str, text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=sentence) as refusal:
        open_source(tmp_path / name, SPEC)
    assert "\n" not in str(refusal.value)


def test_images_for_a_tensor_bundle_say_so(photos: Path) -> None:
    with pytest.raises(
        DataError, match=r"item 0.png: The bundle takes tensors .* build the bundle with an image input"
    ):
        load_arrays(photos / "ant" / "0.png", TensorInput(shape=(4,)))


def test_links_are_followed_but_not_in_circles(photos: Path) -> None:
    (photos / "more").symlink_to(photos / "cat")
    (photos / "ant" / "loop").symlink_to(photos)
    ids = _one(photos).ids
    assert ids.count("more/0.png") == 1
    assert len(ids) == 22 + 5


def test_pixels_may_be_saved_one_array_a_file(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (3, 8, 8, 1), np.uint8)
    for i, item in enumerate(pixels):
        np.save(tmp_path / f"{i}.npy", item)
    np.testing.assert_array_equal(_one(tmp_path).items[0].x, pixels)


def test_a_key_that_comes_late_is_refused_by_line(tmp_path: Path) -> None:
    lines = ['{"path": "a.png"}'] * 17_000 + ['{"path": "a.png", "site": 3}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match="line 17001: the key 'site' is new"):
        open_source(tmp_path / "a.jsonl", SPEC)


def test_the_column_asked_for_makes_a_header(photos: Path) -> None:
    path = photos / "files.csv"
    path.write_text("picture,y\nant/0.png,ant\nbee/0.png,bee\n")
    batch = _one(path, classes=CLASSES, columns=Columns(input="picture"))
    assert batch.ids == ["ant/0.png", "bee/0.png"]
    assert not batch.faults
    path.write_text("picture\nant/0.png\n")
    assert _one(path, columns=Columns(input="picture")).ids == ["ant/0.png"]
    path.write_text("path,label\nant/0.png,ant\n")
    with pytest.raises(DataError, match="has no column 'picture'; it has path, label"):
        _one(path, columns=Columns(input="picture"))


def test_names_that_are_no_utf8_are_read_all_the_same(tmp_path: Path, png: Png) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    try:
        (tmp_path / name).write_bytes(png(3))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    (tmp_path / "plain.png").write_bytes(png(4))
    batch = _one(tmp_path)
    assert batch.ids == ["caf\\udce9.png", "plain.png"]
    assert not batch.faults
    np.testing.assert_array_equal(batch.items[0].x[0], _pixels(png(3)))
    (tmp_path / name).unlink()
    listed = io.StringIO(f"{tmp_path / name}\n{tmp_path / 'plain.png'}\n")
    batch = _one("-", stdin=listed)
    assert list(batch.faults) == [0]
    assert batch.faults[0].message.startswith("No such file: ")
    assert pa.array([batch.faults[0].message])
