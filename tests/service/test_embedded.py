"""The embedded default: what a caller sees who has just installed the service."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.local import Local

from models.bundle import Bundle
from models.fashion import bundle_path, samples_path


@pytest.fixture
def fashion(tmp_path: Path, make_local: Callable[..., Local]) -> Local:
    shutil.copytree(bundle_path(), tmp_path / "fashion")
    return make_local(Bundle.open(tmp_path / "fashion"))


def samples(name: str, n: int) -> np.ndarray:
    x: np.ndarray = np.load(samples_path("demo") / f"{name}.npz")["x"][:n]
    return x


def test_a_batch_is_decided_as_its_items_one_by_one(fashion: Local) -> None:
    x = np.concatenate([samples("id", 30), samples("near", 15), samples("far", 15)])
    together = fashion.classify(x.tolist()).json()["predictions"]
    assert {p["decision"] for p in together} == {"accept", "reject"}
    for one, image in zip(together, x, strict=True):
        alone = fashion.classify([image.tolist()]).json()["predictions"][0]
        assert (alone["decision"], alone["reason"], alone["label"]) == (one["decision"], one["reason"], one["label"])
        assert alone["s_id"] == pytest.approx(one["s_id"], abs=1e-5)
        assert alone["s_ood"] == pytest.approx(one["s_ood"], abs=1e-4)


def test_a_picture_is_decided_as_its_pixels(fashion: Local) -> None:
    image = samples("id", 1)[0]
    stream = io.BytesIO()
    Image.fromarray(image[..., 0]).save(stream, "PNG")
    headers = {"content-type": "image/png"}
    picture = fashion.request("POST", "/v1/classify", content=stream.getvalue(), headers=headers).json()
    pixels = fashion.classify([image.tolist()]).json()
    assert {**picture["predictions"][0], "id": None} == {**pixels["predictions"][0], "id": None}


def test_far_pictures_are_refused_and_known_ones_get_through(fashion: Local) -> None:
    far = fashion.classify(samples("far", 60).tolist()).json()["predictions"]
    known = fashion.classify(samples("id", 60).tolist()).json()["predictions"]
    accepted = [sum(p["decision"] == "accept" for p in group) for group in (far, known)]
    assert accepted[0] <= 3
    assert accepted[1] >= 20


def test_every_demo_image_is_answered(fashion: Local) -> None:
    for path in sorted((samples_path("demo") / "images").glob("*.png")):
        answer = fashion.request(
            "POST", "/v1/classify", content=path.read_bytes(), headers={"content-type": "image/png"}
        )
        prediction = answer.json()["predictions"][0]
        if path.stem in ("unknown-drawing", "unknown-texture"):
            assert prediction["decision"] == "reject", path.name
