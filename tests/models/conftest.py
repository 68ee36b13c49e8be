"""Small real models and bundles that several tests share."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from support.small import dense_model


@pytest.fixture
def dense(tmp_path: Path) -> Path:
    """A dense model on disk."""
    path = tmp_path / "dense.onnx"
    onnx.save(dense_model(), path)
    return path


@pytest.fixture
def fit_file(tmp_path: Path) -> Path:
    """600 labelled rows for the dense model."""
    rng = np.random.default_rng(2)
    path = tmp_path / "fit.npz"
    np.savez(path, x=rng.normal(size=(600, 8)).astype(np.float32), y=np.arange(600) % 5)
    return path


@pytest.fixture
def make_bundle(dense: Path, fit_file: Path, tmp_path: Path) -> Callable[..., Path]:
    """Build the dense model into a bundle; keyword arguments go to the recipe."""
    from models.build import Recipe, build

    def make(out: str = "bundle", **recipe: object) -> Path:
        return build(dense, fit_file, tmp_path / out, Recipe(**recipe), overwrite=True).path  # type: ignore[arg-type]

    return make
