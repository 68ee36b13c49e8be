"""What a classifier gives a score to work with."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Head:
    """The last linear layer, `logits = features · weightᵀ + bias`, in float64."""

    weight: NDArray[np.float64]
    bias: NDArray[np.float64]
    kind: str


@dataclass(frozen=True)
class Signals:
    """Logits [N, C] and, where a head was found, penultimate features [N, D]."""

    logits: NDArray[np.floating]
    features: NDArray[np.floating] | None = None

    def __len__(self) -> int:
        return len(self.logits)


def join(parts: Sequence[Signals]) -> Signals:
    """The rows of several signals of one classifier, one after the other."""
    features = [part.features for part in parts if part.features is not None]
    return Signals(np.concatenate([part.logits for part in parts]), np.concatenate(features) if features else None)
