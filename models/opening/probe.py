"""Random inputs that a model accepts: what every claim about it is tested on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from models.errors import ClassifierError, ModelsError
from models.runtime import RuntimeOptions, Session

PLAIN = RuntimeOptions(provider="cpu", optimization="disable")
"""No rewriting by the runtime: the graph's own arithmetic is what is examined."""

_DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64")
_OPEN_SIZES = (32, 64, 16, 224, 28, 128, 256, 8, 299, 384, 512, 10, 100, 784, 1)
_KINDS = ((0, 1, False), (0.5, 0.5, True), (0, 0.1, False), (127.5, 127.5, True), (0, 10, False))
"""Rows of floats by centre, spread and whether they are uniform: standardised, unit and pixel ranges, small, large."""
_RANGES = (30_000, 1000, 256, 64, 16, 4, 2)


@dataclass(frozen=True)
class ModelInput:
    """The one input: name, element type, sizes without the batch axis (None: open), and the batch size if fixed."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    batch: int | None

    def describe(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype} [{'batch' if self.batch is None else self.batch}, {sizes}]"


@dataclass(frozen=True)
class Probe:
    """Draws random batches: concrete sizes, and for integers the range that the model takes."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    high: int = 2

    @property
    def rows(self) -> int:
        """How many rows make a good test at a bearable price."""
        size = np.prod(self.shape)
        return 24 if size <= 1000 else 8 if size <= 50_000 else 5

    def draw(self, n: int, seed: int) -> NDArray[Any]:
        """`n` rows of different kinds and scales."""
        rng = np.random.default_rng(seed)
        rows = [self._row(rng, i) for i in range(n)]
        return np.stack(rows).astype(self.dtype)

    def _row(self, rng: np.random.Generator, i: int) -> NDArray[Any]:
        if self.dtype == np.int8:
            return rng.integers(-128, 128, self.shape)
        if self.dtype.kind in "iu":
            tops = [self.high, *(top for top in _RANGES if top < self.high)]
            return rng.integers(0, tops[i % min(len(tops), 4)], self.shape)
        centre, spread, uniform = _KINDS[i % len(_KINDS)]
        if uniform:
            return rng.uniform(centre - spread, centre + spread, self.shape)
        return rng.normal(centre, spread, self.shape)


def read_input(model: onnx.ModelProto, wanted: str | None) -> ModelInput:
    """The model's one input, or a refusal that says what it takes instead."""
    inputs = list(model.graph.input)
    names = ", ".join(f"'{value.name}'" for value in inputs)
    if wanted is not None and wanted not in {value.name for value in inputs}:
        raise ClassifierError(f"The model has no input '{wanted}'; it has {names or 'none'}.")
    if len(inputs) != 1:
        raise ClassifierError(
            f"The model takes {len(inputs)} inputs ({names}); a classifier with exactly one tensor input can be gated, "
            "so export it with the others folded into one tensor or fixed as constants."
        )
    return _describe(inputs[0])


def find_probe(session: Session, source: ModelInput, outputs: Sequence[str]) -> Probe:
    """The first kind of random input that the model runs on."""
    first: Exception | None = None
    for probe in _candidates(source):
        try:
            session.run(probe.draw(source.batch or 2, 0), outputs)
        except ModelsError as fault:
            first = first or fault
        else:
            return probe
    raise ClassifierError(
        f"The model takes {source.describe()}, but it ran on no random input of that kind "
        f"({str(first).rstrip('.')}); export it with fixed sizes."
    )


def run(session: Session, x: NDArray[Any], names: Sequence[str], chunk: int | None) -> dict[str, NDArray[Any]]:
    """Those of the named values that have a row for each row of `x`, computed in batches of `chunk` rows."""
    size = chunk or len(x)
    parts = [session.run(x[i : i + size], names) for i in range(0, len(x), size)]
    found = {}
    for name, *pieces in zip(names, *parts, strict=True):
        if all(isinstance(piece, np.ndarray) and piece.ndim and len(piece) == size for piece in pieces):
            found[name] = np.concatenate(pieces)
    return found


def _describe(value: onnx.ValueInfoProto) -> ModelInput:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise ClassifierError(
            f"The input '{value.name}' is no tensor; a classifier with one tensor input can be gated."
        )
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    except (KeyError, TypeError):
        dtype = np.dtype(object)
    if str(dtype) not in _DTYPES:
        kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
        raise ClassifierError(
            f"The input '{value.name}' takes {kind} values; allowed are {', '.join(_DTYPES)}, "
            "so leave the conversion from text or other types outside the model."
        )
    dims = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
    if len(dims) < 2:
        what = f"{len(dims)} axis" if tensor.HasField("shape") else "no known shape"
        raise ClassifierError(
            f"The input '{value.name}' has {what}; a batch axis followed by the axes of one item is needed, "
            "so export the model with a batch axis."
        )
    return ModelInput(value.name, dtype, tuple(dims[1:]), dims[0])


def _candidates(source: ModelInput) -> Iterator[Probe]:
    ranges = _RANGES if source.dtype.kind in "iu" and source.dtype.itemsize > 1 else (256,)
    for shape in _concrete(source.shape):
        for high in ranges:
            yield Probe(source.dtype, shape, high)


def _concrete(shape: tuple[int | None, ...]) -> Iterator[tuple[int, ...]]:
    """Sizes for the open axes; an image with open channels is tried with three and with one."""
    if None not in shape:
        yield tuple(size or 1 for size in shape)
        return
    channels = (3, 1) if len(shape) == 3 and shape[0] is None else (shape[0],)
    for size in _OPEN_SIZES:
        for channel in channels:
            filled = (channel, *shape[1:])
            yield tuple(size if one is None else one for one in filled)
