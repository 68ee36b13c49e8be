"""Decisions under one policy as the few totals that the monitors need; totals of workers and times add up."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.monitoring.layout import MAX_CUTS
from service.monitoring.reference import SCORES

Array = NDArray[np.float64]


@dataclass
class Counts:
    """Decisions under one policy: how many, how many accepted, and where the scores lie."""

    decided: int
    accepted: int
    scored: int
    less: dict[str, Array]
    at_most: dict[str, Array]

    @classmethod
    def nothing(cls) -> "Counts":
        """Before the first decision."""
        empty = {score: np.zeros(MAX_CUTS) for score in SCORES}
        return cls(0, 0, 0, empty, {score: np.zeros(MAX_CUTS) for score in SCORES})

    @classmethod
    def from_fields(cls, fields: dict[str, Array]) -> "Counts":
        """From the per-policy part of a worker's counters, or a difference of two of them."""
        return cls(
            int(fields["decided"][0]),
            int(fields["accepted"][0]),
            int(fields["scored"][0]),
            {score: fields[f"{score}_less"] for score in SCORES},
            {score: fields[f"{score}_at_most"] for score in SCORES},
        )

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.decided + other.decided,
            self.accepted + other.accepted,
            self.scored + other.scored,
            {score: self.less[score] + other.less[score] for score in SCORES},
            {score: self.at_most[score] + other.at_most[score] for score in SCORES},
        )

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "decided": self.decided,
            "accepted": self.accepted,
            "scored": self.scored,
            "less": {score: part.tolist() for score, part in self.less.items()},
            "at_most": {score: part.tolist() for score, part in self.at_most.items()},
        }

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Counts":
        """From JSON."""
        less = {score: np.array(document["less"][score]) for score in SCORES}
        at_most = {score: np.array(document["at_most"][score]) for score in SCORES}
        return cls(document["decided"], document["accepted"], document["scored"], less, at_most)
