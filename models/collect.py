"""Run a classifier once over a data argument and keep its signals on disk, so that fitting may take many passes."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from models.classifier import Classifier
from models.data import OOD, UNLABELLED, Source
from models.errors import DataError
from models.signals import Signals

_BATCH = 256


@dataclass(frozen=True)
class Collected:
    """Signals of every row (memory-mapped), labels where there are any, and the first inputs for a later check."""

    signals: Signals
    labels: NDArray[np.int64] | None
    head_inputs: NDArray[Any]

    def __len__(self) -> int:
        return len(self.signals)


@contextmanager
def collect(
    classifier: Classifier, source: Source, *, progress: Callable[[int], None] = lambda _: None
) -> Iterator[Collected]:
    """Signals of a labelled or unlabelled source; the files behind them live as long as the context.

    Features and logits go to temporary files batch by batch: 1.3 M rows of 2048 features never lie in memory.
    """
    with tempfile.TemporaryDirectory(prefix="airlock-signals-") as folder:
        columns: dict[str, _Column] = {}
        labels: list[NDArray[np.int64]] = []
        first: NDArray[Any] | None = None
        with ExitStack() as stack:
            for x, y in _rows(source):
                found = classifier.signals(x)
                first = x if first is None else first
                for name, values in (("logits", found.logits), ("features", found.features)):
                    if values is not None:
                        if name not in columns:
                            handle = stack.enter_context((Path(folder) / name).open("wb"))
                            columns[name] = _Column(handle, values.dtype, values.shape[1])
                        columns[name].append(values)
                if y is not None:
                    labels.append(y)
                progress(len(x))
        if first is None:
            raise DataError(f"{source.describe()} holds no item.")
        signals = Signals(columns["logits"].read(), columns["features"].read() if "features" in columns else None)
        yield Collected(signals, np.concatenate(labels) if labels else None, first)


class _Column:
    """One signal appended to a file, then mapped."""

    def __init__(self, handle: BinaryIO, dtype: np.dtype[Any], width: int) -> None:
        self._handle, self._dtype, self._width = handle, dtype, width
        self._path = Path(handle.name)

    def append(self, values: NDArray[Any]) -> None:
        self._handle.write(np.ascontiguousarray(values).data)

    def read(self) -> NDArray[Any]:
        return np.memmap(self._path, self._dtype, mode="r").reshape(-1, self._width)


def _rows(source: Source) -> Iterator[tuple[NDArray[Any], NDArray[np.int64] | None]]:
    """Inputs and class indices; what cannot be read, has no label or belongs to no class is refused."""
    for batch in source.batches(_BATCH):
        if batch.faults:
            row, fault = min(batch.faults.items())
            raise DataError(f"{source.describe()}, item {batch.ids[row]}: {fault.message}")
        if batch.y is not None and (batch.y < 0).any():
            row = int(np.flatnonzero(batch.y < 0)[0])
            kind = {OOD: "belongs to no known class", UNLABELLED: "has no label"}[int(batch.y[row])]
            raise DataError(
                f"{source.describe()}, item {batch.ids[row]} {kind}; scores are fitted on in-distribution data, "
                "so leave such items out."
            )
        for items in batch.items:
            yield items.x, None if batch.y is None else batch.y[items.positions]
