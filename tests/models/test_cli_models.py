"""`airlock build`, `inspect` and `export` as a user types them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from PIL import Image
from support.small import dense_model, pixel_model


def airlock(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from service.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit code 1 and one sentence on stderr that has the words."""
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("airlock: ")
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr


def test_build_inspect_export(dense: Path, fit_file: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    done = airlock("build", dense, "--fit", fit_file, "--s-ood", "vim", "--out", bundle, "--classes", "a,b,c,d,e")
    assert done.returncode == 0, done.stderr
    assert "s_ood = vim" in done.stdout
    seen = json.loads(airlock("inspect", bundle, "--json").stdout)
    assert seen["s_id"] == "msp"
    assert seen["classes"] == list("abcde")
    assert "knn" in seen["possible_scores"]
    exported = tmp_path / "gate.onnx"
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"tau_id": 0.5, "tau_ood": -1.0, "bundle": seen["hash"]}))
    done = airlock("export", bundle, "--baked", "--policy", policy, "--out", exported)
    assert done.returncode == 0, done.stderr
    assert exported.stat().st_mode & 0o777 == 0o644
    session = ort.InferenceSession(exported, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    s_id, s_ood, accept = session.run(["s_id", "s_ood", "accept"], {"x": x})
    assert accept.tolist() == ((s_id >= 0.5) & (s_ood >= -1.0)).tolist()
    refused(airlock("export", bundle, "--out", exported), "exists already")


def test_export_without_a_policy_says_how_to_make_one(make_bundle: Callable[..., Path], tmp_path: Path) -> None:
    refused(airlock("export", make_bundle(), "--baked", "--out", tmp_path / "g.onnx"), "no active policy", "calibrate")


def test_a_policy_of_another_bundle_is_not_baked(make_bundle: Callable[..., Path], tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"tau_id": 0.5, "tau_ood": -1.0, "bundle": "0" * 64}))
    done = airlock("export", make_bundle(), "--baked", "--policy", policy, "--out", tmp_path / "g.onnx")
    refused(done, "made for bundle 000000000000")
    assert not (tmp_path / "g.onnx").exists()


def test_inspect_a_model_names_head_and_scores(dense: Path) -> None:
    done = airlock("inspect", dense)
    assert done.returncode == 0
    assert "16 → 5" in done.stdout
    assert "possible scores: msp" in done.stdout


def test_images_from_folders(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("ant", "bee", "cat", "dog"):
        (tmp_path / "train" / name).mkdir(parents=True)
        for i in range(12):
            pixels = rng.integers(0, 256, (20, 16, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "train" / name / f"{i}.png")
    onnx.save(pixel_model(), tmp_path / "m.onnx")
    image = '{"height": 8, "width": 8, "resize": 10, "mean": [0.5], "std": [0.5]}'
    done = airlock("build", tmp_path / "m.onnx", "--fit", tmp_path / "train", "--image", image, "--s-ood", "react",
                   "--out", tmp_path / "b", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)["manifest"]
    assert manifest["classes"] == ["ant", "bee", "cat", "dog"]
    assert manifest["input"]["kind"] == "image"


def test_tuning_is_recorded(dense: Path, fit_file: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", x=9 * np.random.default_rng(1).normal(size=(100, 8)).astype(np.float32))
    done = airlock("build", dense, "--fit", fit_file, "--s-id", "gen", "--s-ood", "vim", "--tune", "--val-id", fit_file,
                   "--val-ood", tmp_path / "odd.npz", "--out", tmp_path / "b", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    tuning = json.loads(done.stdout)["manifest"]["provenance"]["tuning"]
    assert tuning["s_id"]["objective"] == "AUGRC"
    assert tuning["s_ood"]["objective"] == "AUROC"
    values = [trial["value"] for trial in tuning["s_ood"]["trials"] if trial["value"] is not None]
    best = next(t["value"] for t in tuning["s_ood"]["trials"] if t["spec"] == tuning["s_ood"]["best"])
    assert best == max(values)


def test_refusals_of_build(dense: Path, fit_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "b"
    wrong_shape, wrong_type, holes = tmp_path / "s.npz", tmp_path / "t.npz", tmp_path / "n.npz"
    np.savez(wrong_shape, x=np.zeros((20, 9), np.float32))
    np.savez(wrong_type, x=np.array([["a"] * 8] * 20))
    np.savez(holes, x=np.full((20, 8), np.nan, np.float32))
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"not a model")
    common = ("--fit", fit_file, "--out", out)
    refused(airlock("build", dense, *common, "--s-ood", "vin"), "'vin'", "did you mean vim")
    refused(airlock("build", dense, *common, "--s-ood", "vim:dim=99"), "dim", "99")
    refused(airlock("build", dense, *common, "--s-ood", "knn:k=-1"), "k", "-1")
    refused(airlock("build", dense, "--out", out), "vim", "--fit")
    refused(airlock("build", dense, "--fit", tmp_path / "nowhere.npz", "--out", out), "nowhere.npz does not exist")
    refused(airlock("build", dense, "--fit", wrong_shape, "--out", out), "[8]", "9")
    refused(airlock("build", dense, "--fit", wrong_type, "--out", out), "float32", "<U1")
    refused(airlock("build", dense, "--fit", holes, "--out", out), "finite")
    refused(airlock("build", junk, *common), "junk.onnx")
    refused(airlock("build", dense, *common, "--image", "{"), "--image")
    refused(airlock("build", dense, *common, "--image", '{"height": 8, "width": 8}'), "[3, 8, 8]", "[8]")
    refused(airlock("inspect", tmp_path), "manifest.json")
    assert not out.exists()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []
    assert airlock("build", dense).returncode == 2
    assert airlock("buidl").returncode == 2


def test_a_model_without_a_head_says_which_scores_remain(tmp_path: Path) -> None:
    model = dense_model()
    model.graph.node.append(onnx.helper.make_node("Sin", ["z"], ["odd"]))
    model.graph.output[0].name = "odd"
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "f.npz", x=np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32))
    done = airlock("build", tmp_path / "m.onnx", "--fit", tmp_path / "f.npz", "--s-ood", "vim", "--out", tmp_path / "b")
    refused(done, "vim", "features", "energy", "max_logit")
    done = airlock(
        "build", tmp_path / "m.onnx", "--fit", tmp_path / "f.npz", "--s-ood", "energy", "--out", tmp_path / "b"
    )
    assert done.returncode == 0, done.stderr


def test_a_place_that_cannot_be_written_is_one_sentence(make_bundle: Callable[..., Path], tmp_path: Path) -> None:
    refused(airlock("export", make_bundle(), "--out", tmp_path / "no" / "g.onnx"), "cannot be written", "another --out")


def test_the_command_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "service.cli", "scores"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "vim" in done.stdout


def test_inspect_takes_the_output_that_its_refusal_asks_for(tmp_path: Path) -> None:
    model = dense_model()
    hidden = next(node.output[0] for node in model.graph.node if node.op_type == "Relu")
    model.graph.output.append(onnx.helper.make_tensor_value_info(hidden, onnx.TensorProto.FLOAT, ["n", None]))
    logits = model.graph.output[0].name
    onnx.save(model, tmp_path / "two.onnx")
    refused(airlock("inspect", tmp_path / "two.onnx"), "--output")
    seen = json.loads(airlock("inspect", tmp_path / "two.onnx", "--output", logits, "--json").stdout)
    assert seen["head"]["kind"] == "gemm"
    assert airlock("inspect", tmp_path, "--output", logits).returncode == 2


def test_class_names_from_a_file(dense: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    build = ("build", dense, "--s-ood", "energy", "--out", tmp_path / "b", "--json", "--classes", names)
    refused(airlock(*build), "No such file", "commas between")
    names.write_bytes("café\nb\nc\nd\ne\n".encode("latin-1"))
    refused(airlock(*build), "no UTF-8 text")
    names.write_bytes("café, au lait\nb\nc\nd\n\ne\n".encode("utf-8-sig"))
    done = airlock(*build)
    assert json.loads(done.stdout)["manifest"]["classes"] == ["café, au lait", "b", "c", "d", "e"]
