"""The embedded default: a bundle that serves out of the box, and samples to try every command on."""

from pathlib import Path

from models.errors import DataError

SPLITS = ("fit", "calibration", "test", "demo")

_HERE = Path(__file__).parent


def bundle_path() -> Path:
    """The directory of the default bundle."""
    return _HERE / "bundle"


def classifier_path() -> Path:
    """The bare ONNX classifier the bundle was built from."""
    return _HERE / "classifier.onnx"


def samples_path(split: str) -> Path:
    """The directory of a split: `id.npz`, and but for `fit` also `near.npz` and `far.npz`."""
    if split not in SPLITS:
        raise DataError(f"There is no split {split!r} among the embedded samples; choose {', '.join(SPLITS)}.")
    return _HERE / "samples" / split
