"""The embedded classifier's signals: fit rows, test rows with labels, and both groups of outliers."""

from dataclasses import dataclass

import numpy as np
import pytest

from models.bundle import Bundle
from models.fashion import bundle_path, samples_path
from models.scores import FitData
from models.signals import Head, Signals


@dataclass(frozen=True)
class Embedded:
    """Signals of the embedded samples."""

    fit: Signals
    fit_labels: np.ndarray
    id: Signals
    labels: np.ndarray
    near: Signals
    far: Signals
    head: Head

    @property
    def correct(self) -> np.ndarray:
        return self.id.logits.argmax(axis=1) == self.labels

    def data(self) -> FitData:
        return FitData.of(self.fit, self.fit_labels, self.head)


@pytest.fixture(scope="session")
def embedded() -> Embedded:
    classifier = Bundle.open(bundle_path()).classifier()

    def signals(split: str, name: str, rows: int) -> tuple[Signals, np.ndarray]:
        sample = np.load(samples_path(split) / f"{name}.npz")
        return classifier.signals(sample["x"][:rows]), sample["y"][:rows]

    fit, fit_labels = signals("fit", "id", 2500)
    id, labels = signals("test", "id", 2000)
    near, _ = signals("test", "near", 800)
    far, _ = signals("test", "far", 800)
    assert classifier.head is not None
    return Embedded(fit, fit_labels, id, labels, near, far, classifier.head)
