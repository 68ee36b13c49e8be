"""Cut the raw images into the committed samples: fit, calibration, test and demo, with no image in two of them.

Images are drawn in the order of sha256(seed, id), which is the same under every version of every library.
"""

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.fashion.raw import Images

FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
HELD_OUT = ("Coat", "Bag")
CLASSES = tuple(name for name in FASHION_CLASSES if name not in HELD_OUT)
SEED = 20260101

# How many images a file holds; `far` is a pair (drawings, textures).
SIZES = {
    "demo": {"id": 160, "near": 60, "drawing": 40, "texture": 20},
    "calibration": {"id": 3000, "near": 1500, "drawing": 1000, "texture": 500},
    "test": {"id": 3000, "near": 1500, "drawing": 1000, "texture": 500},
}
FIT_SIZE = 2500


@dataclass(frozen=True)
class Sample:
    """One committed file: images, labels among the known classes (-1: none), OOD group and source ids."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    group: NDArray[np.str_]
    id: NDArray[np.str_]

    @classmethod
    def of(cls, images: Images, group: str) -> "Sample":
        return cls(images.x, images.y, np.full(len(images), group), images.id)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"x": self.x, "y": self.y, "group": self.group, "id": self.id}

    def content_hash(self) -> str:
        """sha256 over every array's name, type, shape and bytes: equal however the file is compressed."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays().items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def npz(self) -> bytes:
        """The sample as a compressed .npz file, the same bytes each time."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays())  # type: ignore[arg-type]
        return buffer.getvalue()


def known_only(images: Images) -> Images:
    """The images of the known classes, labelled 0…7 in the order of `CLASSES`."""
    lookup = np.array([CLASSES.index(name) if name in CLASSES else -1 for name in FASHION_CLASSES])
    relabelled = replace(images, y=lookup[images.y])
    return relabelled.take(relabelled.y >= 0)


def held_out_only(images: Images) -> Images:
    """The images of the classes the model never sees, label -1."""
    near = images.take(np.isin(images.y, [FASHION_CLASSES.index(name) for name in HELD_OUT]))
    return replace(near, y=np.full(len(near), -1, np.int64))


def make_samples(train: Images, t10k: Images, drawings: Images, textures: Images) -> dict[str, Sample]:
    """Every committed file by its name, e.g. `calibration/near.npz`.

    Known-class images of calibration, test and demo come from the 10k part, which training never touches; the fit
    file is a part of the training images. An image whose pixels were seen before is skipped, so no two files share
    one and none outside `fit` is a training image.
    """
    learned = known_only(train)
    seen = set(learned.hashes())
    streams = {
        "id": _fresh(known_only(t10k), seen),
        "near": _fresh(held_out_only(Images.join([train, t10k])), seen),
        "drawing": _fresh(drawings, seen),
        "texture": _fresh(textures, seen),
    }
    files = {"fit/id.npz": Sample.of(_shuffle(learned).take(np.arange(FIT_SIZE)), "id")}
    for split, sizes in SIZES.items():
        drawn = {kind: _draw(streams[kind], n) for kind, n in sizes.items()}
        files[f"{split}/id.npz"] = Sample.of(drawn["id"], "id")
        files[f"{split}/near.npz"] = Sample.of(drawn["near"], "near")
        far = Images.join([drawn["drawing"], drawn["texture"]])
        files[f"{split}/far.npz"] = Sample.of(_shuffle(far), "far")
    return files


def demo_images(files: Mapping[str, Sample], near_names: Mapping[str, str]) -> dict[str, bytes]:
    """One PNG a class, one a held-out class, one drawing and one texture, taken from the demo files."""
    chosen: dict[str, NDArray[np.uint8]] = {}
    known, near, far = (files[f"demo/{group}.npz"] for group in ("id", "near", "far"))
    for label, image in zip(known.y, known.x, strict=True):
        chosen.setdefault(_file_name(CLASSES[label]), image)
    for source, image in zip(near.id, near.x, strict=True):
        chosen.setdefault(f"unknown-{_file_name(near_names[str(source)])}", image)
    for source, image in zip(far.id, far.x, strict=True):
        chosen.setdefault(f"unknown-{str(source).partition(':')[0]}", image)
    return {f"demo/images/{name}.png": _png(image) for name, image in sorted(chosen.items())}


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _shuffle(images: Images) -> Images:
    keys = [hashlib.sha256(f"{SEED}:{name}".encode()).digest() for name in images.id]
    return images.take(np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))


def _fresh(images: Images, seen: set[str]) -> Iterator[Images]:
    """The images one by one in drawing order, without those whose pixels are in `seen`."""
    ordered = _shuffle(images)
    for i, digest in enumerate(ordered.hashes()):
        if digest not in seen:
            seen.add(digest)
            yield ordered.take(np.array([i]))


def _draw(stream: Iterator[Images], n: int) -> Images:
    return Images.join([next(stream) for _ in range(n)])


def _file_name(class_name: str) -> str:
    return class_name.partition("/")[0].lower().replace(" ", "-")


def _png(image: NDArray[np.uint8]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image[..., 0]).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
