"""Policies on tables: which rows they accept, and how two of them differ."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.errors import SelectionRefused
from calibration.policy import Policy
from calibration.table import ScoreTable


def accepted(policy: Policy, table: ScoreTable) -> NDArray[np.bool_]:
    """The rows of a table that the policy accepts."""
    return policy.decide(table.s_id, table.s_ood, None, predicted_classes(table) if policy.per_class else None).accept


def predicted_classes(table: ScoreTable) -> NDArray[np.int64]:
    """The predicted classes as the numbers that per-class thresholds are keyed by."""
    if table.prediction is None:
        raise SelectionRefused("per-class thresholds need the column 'prediction' (class numbers from 0)")
    return class_numbers(table.prediction, "prediction")


def class_numbers(column: NDArray, name: str) -> NDArray[np.int64]:
    """A column of classes as integers."""
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    words = column.astype(str)
    try:
        return words.astype(np.int64)
    except ValueError:
        odd = next(word for word in words.tolist() if not word.lstrip("-").isdecimal())
        raise SelectionRefused(
            f"per-class thresholds need class numbers in the column {name!r}; {odd!r} arrived"
        ) from None


@dataclass(frozen=True)
class Diff:
    """What changes when one policy takes over from another."""

    n: int
    new_accepts: int
    new_rejects: int

    @classmethod
    def between(cls, old: Policy, new: Policy, table: ScoreTable) -> "Diff":
        """Judge the same rows with both."""
        before, after = accepted(old, table), accepted(new, table)
        return cls(len(table), int(np.count_nonzero(after & ~before)), int(np.count_nonzero(before & ~after)))

    @property
    def changed(self) -> int:
        """Decisions that are not the same."""
        return self.new_accepts + self.new_rejects

    def __str__(self) -> str:
        if not self.changed:
            return f"none of {self.n:,} decisions changes"
        verb = "changes" if self.changed == 1 else "change"
        accepts = f"{self.new_accepts:,} new accept{'' if self.new_accepts == 1 else 's'}"
        rejects = f"{self.new_rejects:,} new reject{'' if self.new_rejects == 1 else 's'}"
        return f"{self.changed:,} of {self.n:,} decisions {verb}: {accepts}, {rejects}"
