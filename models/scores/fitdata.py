"""What a score is fitted on: training signals, in memory or streamed, one float64 batch at a time."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from models.errors import ScoreError
from models.signals import Head, Signals

ROWS = 4096
"""Rows a batch holds when the signals are already in memory."""

T = TypeVar("T")


@dataclass(frozen=True)
class FitBatch:
    """Some rows of the fit data: logits [n, C], features [n, D] and labels [n] where they exist."""

    logits: np.ndarray
    features: np.ndarray | None = None
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def h(self) -> np.ndarray:
        """Features, for a score that has declared that it needs them."""
        if self.features is None:
            raise ScoreError("This score needs penultimate features and the fit data has none.")
        return self.features

    @property
    def y(self) -> np.ndarray:
        """Labels, for a score that has declared that it needs them."""
        if self.labels is None:
            raise ScoreError("This score needs labels and the fit data has none.")
        return self.labels

    @property
    def predictions(self) -> np.ndarray:
        return np.asarray(np.argmax(self.logits, axis=1))


class FitData:
    """Signals of in-distribution data, with labels and the classifier's head where they are known.

    `FitData(logits, features, labels, head)` holds arrays; `FitData.stream(batches, head)` takes a function that
    starts a new pass over batches, so that statistics of a set larger than memory can be fitted. Rows with a
    non-finite signal are left out and counted in `dropped`.
    """

    def __init__(
        self,
        logits: np.ndarray,
        features: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        head: Head | None = None,
    ) -> None:
        _check_lengths(logits, features, labels)
        self._source: Callable[[], Iterable[FitBatch]] = lambda: _slices(logits, features, labels)
        self._start(FitBatch(logits[:0], None if features is None else features[:0], labels), head)

    @classmethod
    def stream(cls, batches: Callable[[], Iterable[FitBatch]], head: Head | None = None) -> "FitData":
        """Fit data read in passes: `batches()` starts one, and gives the same rows in the same order each time."""
        first = next(iter(batches()), None)
        if first is None:
            raise ScoreError("The fit data is empty: give at least one batch of signals.")
        data = cls.__new__(cls)
        data._source = batches
        data._start(first, head)
        return data

    @classmethod
    def of(cls, signals: Signals, labels: np.ndarray | None = None, head: Head | None = None) -> "FitData":
        """Fit data from a classifier's signals."""
        return cls(signals.logits, signals.features, labels, head)

    def _start(self, example: FitBatch, head: Head | None) -> None:
        if example.logits.ndim != 2 or example.logits.shape[1] < 2:
            raise ScoreError(
                f"Logits of shape [N, C] with at least two classes are needed, got {list(example.logits.shape)}."
            )
        self.head = head
        self.n_classes = int(example.logits.shape[1])
        self.dim = 0 if example.features is None else int(example.features.shape[1])
        self.has_labels = example.labels is not None
        self.dropped = 0
        self._memo: dict[Any, Any] = {}
        self._check_head()

    def _check_head(self) -> None:
        if self.head is None or not self.dim:
            return
        if self.head.weight.shape != (self.n_classes, self.dim):
            raise ScoreError(
                f"The head's weight is {list(self.head.weight.shape)}, but the signals have {self.n_classes} classes "
                f"and {self.dim} features."
            )

    @property
    def has_features(self) -> bool:
        return self.dim > 0

    def batches(self) -> Iterator[FitBatch]:
        """One pass in float64, finite rows only."""
        dropped = 0
        for batch in self._source():
            clean = _finite_rows(batch)
            dropped += len(batch) - len(clean)
            if len(clean):
                yield clean
        self.dropped = dropped

    def map(self, change: Callable[[FitBatch], FitBatch], head: Head | None) -> "FitData":
        """The same rows seen through a transformation of the signals (a wrapper fits its score on these)."""
        return FitData.stream(lambda: (change(batch) for batch in self.batches()), head)

    def memo(self, key: Any, compute: Callable[[], T]) -> T:
        """A statistic several scores share, computed once per fit data."""
        if key not in self._memo:
            self._memo[key] = compute()
        value: T = self._memo[key]
        return value

    @property
    def is_empty(self) -> bool:
        """Whether there is no finite row."""
        return self.memo("is_empty", lambda: next(self.batches(), None) is None)

    def sample(self, rows: int, seed: int = 0) -> FitBatch:
        """At most `rows` rows drawn uniformly without replacement in one pass (a reservoir), in their first order."""
        return self.memo(("sample", rows, seed), lambda: _reservoir(self.batches(), rows, seed))


def _check_lengths(logits: np.ndarray, features: np.ndarray | None, labels: np.ndarray | None) -> None:
    for name, array in (("features", features), ("labels", labels)):
        if array is not None and len(array) != len(logits):
            raise ScoreError(f"{name} has {len(array)} rows where logits has {len(logits)}.")


def _slices(logits: np.ndarray, features: np.ndarray | None, labels: np.ndarray | None) -> Iterator[FitBatch]:
    for start in range(0, len(logits), ROWS):
        rows = slice(start, start + ROWS)
        yield FitBatch(
            logits[rows], None if features is None else features[rows], None if labels is None else labels[rows]
        )


def _finite_rows(batch: FitBatch) -> FitBatch:
    logits = np.asarray(batch.logits, dtype=np.float64)
    features = None if batch.features is None else np.asarray(batch.features, dtype=np.float64)
    labels = None if batch.labels is None else np.asarray(batch.labels).astype(np.int64)
    keep = np.isfinite(logits).all(axis=1)
    if features is not None:
        keep &= np.isfinite(features).all(axis=1)
    if keep.all():
        return FitBatch(logits, features, labels)
    return FitBatch(
        logits[keep], None if features is None else features[keep], None if labels is None else labels[keep]
    )


def _reservoir(batches: Iterable[FitBatch], rows: int, seed: int) -> FitBatch:
    """Keep the rows with the smallest random keys: uniform, one pass, memory for `rows` rows and a batch."""
    rng = np.random.default_rng(seed)
    kept: FitBatch | None = None
    keys = np.empty(0)
    for batch in batches:
        drawn = rng.random(len(batch))
        if len(keys) >= rows:
            chance = np.flatnonzero(drawn < keys.max())
            drawn, batch = drawn[chance], _pick(batch, chance)
        keys = np.concatenate([keys, drawn])
        kept = batch if kept is None else _join(kept, batch)
        if len(kept) > rows:
            chosen = np.sort(np.argpartition(keys, rows - 1)[:rows])
            keys, kept = keys[chosen], _pick(kept, chosen)
    if kept is None:
        raise ScoreError("The fit data has no finite row.")
    return kept


def _join(a: FitBatch, b: FitBatch) -> FitBatch:
    return FitBatch(
        np.concatenate([a.logits, b.logits]),
        None if a.features is None else np.concatenate([a.features, b.h]),
        None if a.labels is None else np.concatenate([a.labels, b.y]),
    )


def _pick(batch: FitBatch, rows: np.ndarray) -> FitBatch:
    return FitBatch(
        batch.logits[rows],
        None if batch.features is None else batch.features[rows],
        None if batch.labels is None else batch.labels[rows],
    )
