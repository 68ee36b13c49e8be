"""The counters of a worker as one vector of float64: which numbers there are and where each of them stands.

Counts up to 2⁵³ are exact in float64, and one flat vector is added to, copied and summed over workers in one go.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from calibration.policy import REASONS
from service.monitoring.reference import SCORES

MAX_CUTS = 32
SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
PLAIN_BUCKETS = (-100.0, -30.0, -10.0, -3.0, -1.0, -0.3, 0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
OTHER = "other"


@dataclass(frozen=True)
class Layout:
    """What is counted for one server: histogram buckets and the classes that have a series of their own."""

    classes: tuple[str, ...]
    buckets: dict[str, tuple[float, ...]]  # of s_id and s_ood, upper ends, +Inf left out

    @cached_property
    def fields(self) -> dict[str, slice]:
        """Name of every group of counters -> where it stands."""
        sizes = {
            "decisions": len(REASONS),
            "predictions": 2 * (len(self.classes) + 1),
            "near": 1,
            "shadow": 2,
            "seconds": len(SECONDS) + 1,
            "seconds_sum": 1,
            "batch": len(BATCHES) + 1,
            "batch_sum": 1,
            "ledger_written": 1,
            "ledger_dropped": 1,
            "ledger_errors": 1,
            "ledger_queue": 1,
            "ledger_lag": 1,
            "missed": 1,
            "in_flight": 1,
        }
        for score in SCORES:
            sizes[score] = len(self.buckets[score]) + 1
            sizes[f"{score}_sum"] = 1
        sizes |= MONITOR_SIZES
        return _slices(sizes)

    @property
    def size(self) -> int:
        """Length of the vector."""
        return max(int(part.stop) for part in self.fields.values())

    @cached_property
    def signature(self) -> str:
        """Equal for layouts whose vectors may be added."""
        return hashlib.sha256(orjson.dumps([self.document(), list(self.fields)])).hexdigest()[:16]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"classes": list(self.classes), "buckets": {name: list(ends) for name, ends in self.buckets.items()}}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Layout":
        """From JSON."""
        buckets = {name: tuple(ends) for name, ends in document["buckets"].items()}
        return cls(tuple(document["classes"]), buckets)


# The part that belongs to one policy; `epoch` is another one whenever it starts over from zero.
MONITOR_SIZES = {
    "epoch": 1,
    "policy": 1,
    "decided": 1,
    "accepted": 1,
    "scored": 1,
    **{f"{score}_{side}": MAX_CUTS for score in SCORES for side in ("less", "at_most")},
}


def _slices(sizes: dict[str, int]) -> dict[str, slice]:
    found, start = {}, 0
    for name, size in sizes.items():
        found[name] = slice(start, start + size)
        start += size
    return found
