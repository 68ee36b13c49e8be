"""A bundle either loads as it was built or says in one sentence why it does not."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models import staging
from models.build import Recipe, build
from models.bundle import Bundle
from models.errors import BundleError
from models.staging import _locked

X = np.random.default_rng(5).normal(size=(40, 8)).astype(np.float32)


def test_an_opened_bundle_answers_as_the_built_one(make_bundle: Callable[..., Path]) -> None:
    path = make_bundle(s_ood="energy", name="dense", version="7", classes=list("abcde"))
    first, second = (Bundle.open(path).scorer().score(X) for _ in range(2))
    np.testing.assert_array_equal(first.s_id, second.s_id)
    manifest = Bundle.open(path).manifest
    assert (manifest.name, manifest.version, manifest.classes) == ("dense", "7", tuple("abcde"))
    assert manifest.scores["s_ood"]["id"] == "energy"


def test_the_hash_binds_model_and_scores(make_bundle: Callable[..., Path]) -> None:
    hashes = {Bundle.open(make_bundle(f"b{i}", s_ood=s)).hash for i, s in enumerate(("energy", "energy:T=2", "vim"))}
    assert len(hashes) == 3


@pytest.mark.parametrize("offset", [0, 100, -1])
def test_a_flipped_byte_in_the_model_is_found(make_bundle: Callable[..., Path], offset: int) -> None:
    path = make_bundle() / "model.onnx"
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(BundleError, match=r"model\.onnx is damaged: its sha256"):
        Bundle.open(path.parent)


def test_every_flipped_byte_of_the_manifest_is_found(make_bundle: Callable[..., Path]) -> None:
    path = make_bundle() / "manifest.json"
    good = path.read_bytes()
    meaning = json.loads(good)
    for position in range(0, len(good), 7):
        data = bytearray(good)
        data[position] ^= 2
        path.write_bytes(data)
        try:
            same = json.loads(bytes(data)) == meaning
        except ValueError:
            same = False
        if not same:
            with pytest.raises(BundleError):
                Bundle.open(path.parent)


@pytest.mark.parametrize("name", ["model.onnx", "manifest.json"])
def test_a_missing_file_is_named(make_bundle: Callable[..., Path], name: str) -> None:
    path = make_bundle()
    (path / name).unlink()
    with pytest.raises(BundleError, match=name):
        Bundle.open(path)


@pytest.mark.parametrize("version", [2, "1", None])
def test_an_unknown_format_says_which_one_is_read(make_bundle: Callable[..., Path], version: object) -> None:
    path = make_bundle()
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "format": version}))
    with pytest.raises(BundleError, match=f"format {version!r}, but this version of Airlock reads format 1"):
        Bundle.open(path)


def test_a_manifest_cannot_reach_outside_its_bundle(make_bundle: Callable[..., Path]) -> None:
    from models.bundle import Manifest

    path = make_bundle()
    manifest = Manifest.model_validate_json((path / "manifest.json").read_text())
    evil = manifest.model_copy(update={"files": {"../secret": "0" * 64}}).sealed()
    (path / "manifest.json").write_text(evil.model_dump_json())
    with pytest.raises(BundleError, match="outside itself"):
        Bundle.open(path)


def test_an_existing_bundle_is_replaced_only_when_asked(
    make_bundle: Callable[..., Path], dense: Path, fit_file: Path
) -> None:
    path = make_bundle()
    before = Bundle.open(path).hash
    with pytest.raises(BundleError, match="--overwrite"):
        build(dense, fit_file, path, Recipe(version="2"))
    assert Bundle.open(path).hash == before
    assert build(dense, fit_file, path, Recipe(version="2"), overwrite=True).hash != before
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []


def test_a_build_killed_at_any_moment_leaves_a_whole_bundle(
    make_bundle: Callable[..., Path], dense: Path, fit_file: Path
) -> None:
    path = make_bundle()
    script = (
        "import sys; from models.build import Recipe, build; print('ready', flush=True)\n"
        "for i in range(10**6): build(sys.argv[1], sys.argv[2], sys.argv[3], Recipe(version=str(i)), overwrite=True)"
    )
    arguments = [sys.executable, "-c", script, str(dense), str(fit_file), str(path)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    # Between the two renames of a replacement the former bundle stands, whole, under another name.
    if not path.exists():
        (path,) = path.parent.glob(".bundle.old.*")
    Bundle.open(path)


def test_what_a_killed_build_left_is_removed_by_the_next_one(
    make_bundle: Callable[..., Path], dense: Path, fit_file: Path
) -> None:
    path = make_bundle()
    left = [path.parent / name for name in (".bundle.old.abcd1234", ".bundle.wxyz_890")]
    others = [path.parent / name for name in (".bundle.notes", ".other.abcd1234", "bundle.old")]
    for folder in (*left, *others):
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"half")
    with _locked(left[1]):  # as if its build were still running
        build(dense, fit_file, path, Recipe(version="2"), overwrite=True)
    assert not left[0].exists()
    assert left[1].exists()
    build(dense, fit_file, path, Recipe(version="3"), overwrite=True)
    assert not left[1].exists()
    assert all(folder.exists() for folder in others)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_replaced_bundle_is_never_missing_where_the_system_can_swap_names(
    make_bundle: Callable[..., Path], dense: Path, fit_file: Path, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    path = make_bundle()
    if not at_once:
        monkeypatch.setattr(staging, "_exchange", lambda one, other: False)
    elif not staging._exchange(path, path):
        pytest.skip("this system cannot swap two names")
    else:
        monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("a rename leaves the name empty for a moment"))
    assert build(dense, fit_file, path, Recipe(version="2"), overwrite=True).manifest.version == "2"
    assert [entry.name for entry in path.parent.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.parametrize("kind", ["file", "folder", "link to a folder"])
def test_overwrite_replaces_nothing_but_a_bundle(dense: Path, fit_file: Path, tmp_path: Path, kind: str) -> None:
    precious = tmp_path / "home"
    precious.mkdir()
    (precious / "manifest.json").write_text("{}")  # web pages have one too
    target = precious
    if kind == "file":
        target = precious / "manifest.json"
    elif kind == "link to a folder":
        target = tmp_path / "link"
        target.symlink_to(precious)
    with pytest.raises(BundleError, match="is no bundle, so --overwrite does not replace it"):
        build(dense, fit_file, target, Recipe(), overwrite=True)
    assert (precious / "manifest.json").read_text() == "{}"


def test_a_damaged_bundle_and_an_empty_folder_are_replaced(
    make_bundle: Callable[..., Path], dense: Path, fit_file: Path, tmp_path: Path
) -> None:
    path = make_bundle()
    (path / "model.onnx").unlink()
    (path / "manifest.json").write_text("{")
    empty = tmp_path / "empty"
    empty.mkdir()
    for target in (path, empty):
        build(dense, fit_file, target, Recipe(), overwrite=True)
        Bundle.open(target)


def test_a_link_to_a_bundle_stays_a_link(make_bundle: Callable[..., Path], dense: Path, fit_file: Path) -> None:
    path = make_bundle()
    link = path.parent / "current"
    link.symlink_to(path)
    build(dense, fit_file, link, Recipe(version="2"), overwrite=True)
    assert link.is_symlink()
    assert Bundle.open(path).manifest.version == "2"


@pytest.mark.parametrize("given", [{"name": "ünï x"}, {"name": ""}, {"version": "1 beta"}, {"version": "v" * 51}])
def test_a_name_that_no_manifest_takes_is_refused_before_the_fit(
    dense: Path, tmp_path: Path, given: dict[str, str]
) -> None:
    with pytest.raises(BundleError, match=r"The (name|version) '.*' is not allowed; give 1 to"):
        build(dense, tmp_path / "no-such-data.npz", tmp_path / "b", Recipe(**given))


def test_the_classifier_inside_opens_again(make_bundle: Callable[..., Path]) -> None:
    classifier = Bundle.open(make_bundle(s_ood="vim")).classifier()
    assert classifier.head is not None
    assert classifier.head.weight.shape == (5, 16)
    np.testing.assert_array_equal(
        classifier.signals(X).logits.argmax(axis=1), Bundle.open(make_bundle(s_ood="vim")).scorer().score(X).label
    )


def test_a_bundle_from_before_an_optional_field_still_opens(make_bundle: Callable[..., Path]) -> None:
    from models.bundle import document_digest

    path = make_bundle() / "manifest.json"
    older = json.loads(path.read_text())
    del older["input"]["seen"], older["graph"]["fixed_batch"]
    older["digest"] = document_digest(older)
    path.write_text(json.dumps(older))
    assert Bundle.open(path.parent).hash == older["digest"]


def test_open_sizes_are_warmed_up_with_sizes_the_model_was_built_with(tmp_path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    from models.build import Recipe, build

    rng = np.random.default_rng(0)
    weights = {"k": rng.normal(size=(6, 1, 5)), "w": rng.normal(size=(6, 3)), "b": np.zeros(3)}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["h"]),
        helper.make_node("Gemm", ["h", "w", "b"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "open",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "length"])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "fit.npz", x=rng.normal(size=(60, 1, 40)).astype(np.float32))
    bundle = build(tmp_path / "m.onnx", tmp_path / "fit.npz", tmp_path / "b", Recipe(s_ood="energy"))
    assert bundle.manifest.input.example(2).shape == (2, 1, 40)
    assert len(bundle.scorer().score(rng.normal(size=(4, 1, 17)).astype(np.float32))) == 4
