"""Make the embedded default from the raw public files: `python -m models.fashion.make --data DIR`.

Read → train → export → cut samples → build the bundle → calibrate a policy on the calibration samples. Everything is
made in a directory beside the target and moved into place at the end, so a run that fails changes nothing.
"""

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.build import Recipe, build
from models.bundle import Bundle
from models.errors import ModelsError
from models.fashion import bundle_path, raw
from models.fashion.provenance import provenance
from models.fashion.splits import CLASSES, FASHION_CLASSES, Sample, demo_images, known_only, make_samples, write_files
from models.inputs import ImageInput

S_ID, S_OOD = "msp", "relative_mahalanobis"
POLICY = ("--method", "certified", "--risk", "0.05", "--delta", "0.05")
MIN_ACCURACY = 0.92
AIRLOCK = (sys.executable, "-c", "from service.cli import main; main()")
ROOT = Path(__file__).resolve().parents[2]
PARTS = ("classifier.onnx", "samples", "bundle", "provenance.json")


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: one sentence and exit code 1 when something is missing or does not fit."""
    options = _parser().parse_args(arguments)
    try:
        make(options.data, options.out, classifier=options.classifier)
    except ModelsError as refusal:
        sys.exit(f"make: {refusal}")


def make(directories: Sequence[Path], out: Path, *, classifier: Path | None = None) -> None:
    """Make every part from the raw files in `directories` and put them into `out`.

    A given `classifier` is used as it is instead of training one.
    """
    train, t10k = (raw.read_fashion(directories, part) for part in ("train", "t10k"))
    samples = make_samples(train, t10k, raw.read_drawings(directories), raw.read_textures(directories))
    garments = raw.Images.join([train, t10k])
    names = {str(name): FASHION_CLASSES[y] for name, y in zip(garments.id, garments.y, strict=True)}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".make-") as name:
        staging = Path(name)
        if classifier is not None:
            shutil.copyfile(classifier, staging / "classifier.onnx")
            training: dict[str, Any] = {"classifier": "given"}
        else:
            training = _train(known_only(train), staging / "classifier.onnx")
        _say("cutting samples")
        files = {f"samples/{name}": sample.npz() for name, sample in samples.items()}
        files |= {f"samples/{name}": data for name, data in demo_images(samples, names).items()}
        write_files(staging, files)
        _write_provenance(staging, samples, files, training)
        _build(staging)
        _check_accuracy(staging)
        _calibrate(staging)
        _install(staging, out)
    _say(f"done: {out}")


def _train(images: raw.Images, path: Path) -> dict[str, Any]:
    # Read when torch is loaded: threads that sleep while they wait are five times faster on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from models.export import export_classifier
    from models.fashion import net

    recipe = net.Recipe()
    _say(f"training on {len(images)} images for {recipe.epochs} epochs")
    trained = net.train(
        images.x, images.y, len(CLASSES), recipe, lambda epoch, loss: _say(f"  epoch {epoch + 1}: loss {loss:.4f}")
    )
    export_classifier(trained, net.normalise(images.x[:8]), path, class_names=CLASSES)
    return {"images": len(images), "recipe": dataclasses.asdict(recipe), "torch": torch.__version__}


def _write_provenance(
    staging: Path, samples: Mapping[str, Sample], files: Mapping[str, bytes], training: Mapping[str, Any]
) -> None:
    document = provenance(
        {f"samples/{name}": sample for name, sample in samples.items()},
        {**files, "classifier.onnx": (staging / "classifier.onnx").read_bytes()},
        training,
    )
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (staging / "provenance.json").write_text(text + "\n", encoding="utf-8")


def _build(staging: Path) -> None:
    _say(f"building the bundle: s_id={S_ID}, s_ood={S_OOD}")
    recipe = Recipe(
        s_id=S_ID,
        s_ood=S_OOD,
        name="fashion",
        version="1",
        image=ImageInput(height=raw.SIDE, width=raw.SIDE, channels=1, mean=(raw.PIXEL_MEAN,), std=(raw.PIXEL_STD,)),
    )
    build(staging / "classifier.onnx", staging / "samples/fit/id.npz", staging / "bundle", recipe)


def _check_accuracy(staging: Path) -> None:
    with np.load(staging / "samples/test/id.npz") as test:
        scored = Bundle.open(staging / "bundle").scorer().score(test["x"])
        accuracy = float(np.mean(scored.label == test["y"]))
    _say(f"accuracy on the known classes of the test sample: {accuracy:.4f}")
    if accuracy < MIN_ACCURACY:
        raise ModelsError(f"The classifier reaches {accuracy:.4f} on the test sample; {MIN_ACCURACY} is required.")


def _calibrate(staging: Path) -> None:
    """Store an active policy, through the command line: `models` does not know `calibration`."""
    command = ["calibrate", "bundle", "--id", "samples/calibration/id.npz"]
    for group in ("near", "far"):
        command += ["--ood", f"{group}=samples/calibration/{group}.npz"]
    command += [*POLICY, "--activate"]
    # The policy records its data by the names given: relative ones mean the same in every clone.
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    finished = subprocess.run([*AIRLOCK, *command], cwd=staging, env=environment, check=False)
    if finished.returncode:
        raise ModelsError(f"`airlock {' '.join(command)}` ended with exit code {finished.returncode}.")


def _install(staging: Path, out: Path) -> None:
    """Move the parts into place, each with one rename; what stood there goes with the staging directory."""
    old = staging / "old"
    old.mkdir()
    for part in PARTS:
        if (out / part).exists():
            os.rename(out / part, old / part)
        os.rename(staging / part, out / part)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.fashion.make", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--data",
        type=Path,
        action="append",
        required=True,
        metavar="DIR",
        help="directory with raw files (see README.md); repeat it when they lie in several",
    )
    parser.add_argument("--out", type=Path, default=bundle_path().parent, metavar="DIR", help="default: this package")
    parser.add_argument("--classifier", type=Path, metavar="FILE", help="use this ONNX file, do not train")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
