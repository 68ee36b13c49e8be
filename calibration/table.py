"""The score table: one row a sample, the meeting point of models, policies and reports."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from calibration.errors import TableError
from calibration.table_columns import booleans, classes, fitting_rows, floats, matrix, strings, weights

_PER_ROW = ("s_id", "s_ood", "is_id", "correct", "group", "weight", "id", "prediction", "label", "probabilities")


@dataclass(frozen=True, eq=False)
class ScoreTable:
    """Scores and outcomes of samples, validated; build one with `from_columns` or `read`.

    Higher scores mean more trustworthy. `correct` is False on every OOD row. A row whose `s_id` or `s_ood`
    is not finite is kept and counted, and never accepted.

    >>> table = ScoreTable.from_columns(s_id=[0.9, 0.2], s_ood=[3.0, 1.0], is_id=[True, False], correct=[1, 0])
    >>> len(table), table.n_id, table.n_ood
    (2, 1, 1)
    """

    s_id: np.ndarray
    s_ood: np.ndarray
    is_id: np.ndarray
    correct: np.ndarray
    group: np.ndarray | None = None
    weight: np.ndarray | None = None
    id: np.ndarray | None = None
    prediction: np.ndarray | None = None
    label: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.s_id)

    @property
    def n_id(self) -> int:
        """Number of in-distribution rows."""
        return int(np.count_nonzero(self.is_id))

    @property
    def n_ood(self) -> int:
        """Number of out-of-distribution rows."""
        return len(self) - self.n_id

    @cached_property
    def finite(self) -> np.ndarray:
        """Rows with two finite scores; no others can be accepted, whatever the thresholds."""
        finite: np.ndarray = np.isfinite(self.s_id) & np.isfinite(self.s_ood)
        return finite

    @property
    def n_not_finite(self) -> int:
        """Number of rows that can never be accepted because a score is NaN or infinite."""
        return len(self) - int(np.count_nonzero(self.finite))

    @cached_property
    def weights(self) -> np.ndarray:
        """The weight of every row; ones where the table has no weight column."""
        return np.ones(len(self)) if self.weight is None else self.weight

    @classmethod
    def from_columns(cls, **columns: Any) -> "ScoreTable":
        """Validate columns and make a table.

        `s_id`, `s_ood` and `is_id` are required, and either `correct` or both `prediction` and `label`.
        Optional: `group`, `weight`, `id`, `probabilities` ([n, C]). Other names are refused.
        """
        unknown = sorted(set(columns) - set(_PER_ROW))
        if unknown:
            raise TableError(f"Unknown column {unknown[0]!r}; a score table takes {', '.join(_PER_ROW)}.")
        given = {name: value for name, value in columns.items() if value is not None}
        missing = [name for name in ("s_id", "s_ood", "is_id") if name not in given]
        if missing:
            raise TableError(
                f"Column {missing[0]!r} is missing; a score table needs s_id, s_ood, is_id,"
                " and either correct or both prediction and label."
            )
        fitting_rows(given)
        is_id = booleans("is_id", given["is_id"])
        prediction = classes("prediction", given.get("prediction"))
        label = classes("label", given.get("label"))
        return cls(
            s_id=floats("s_id", given["s_id"]),
            s_ood=floats("s_ood", given["s_ood"]),
            is_id=is_id,
            correct=_correct(given.get("correct"), prediction, label, is_id),
            group=strings(given.get("group")),
            weight=weights(given.get("weight")),
            id=strings(given.get("id")),
            prediction=prediction,
            label=label,
            probabilities=matrix("probabilities", given.get("probabilities")),
        )

    @classmethod
    def read(cls, path: str | Path) -> "ScoreTable":
        """Read a CSV or Parquet file; columns that a score table does not know are left out."""
        from calibration.table_files import read_columns

        path = Path(path)
        columns = read_columns(path, _PER_ROW)
        try:
            return cls.from_columns(**columns)
        except TableError as error:
            raise TableError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> Path:
        """Write the table as CSV or Parquet, by the name's ending, whole or not at all."""
        from calibration.table_files import write_columns

        return write_columns(Path(path), self.columns())

    def columns(self) -> dict[str, np.ndarray]:
        """The columns that are present, by name, in the order of the class."""
        present = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in present.items() if value is not None}

    def take(self, rows: "np.ndarray | Sequence[int] | slice") -> "ScoreTable":
        """The rows at an index, a slice or a boolean mask."""
        index = rows if isinstance(rows, slice) else np.asarray(rows)
        if isinstance(index, np.ndarray) and index.size == 0:
            index = index.astype(np.intp)
        return ScoreTable(**{name: column[index] for name, column in self.columns().items()})

    @classmethod
    def concat(cls, tables: Iterable["ScoreTable"]) -> "ScoreTable":
        """One table after another; a column survives only if every table has it (weights default to one)."""
        parts = list(tables)
        if not parts:
            raise TableError("There is no table to concatenate; give at least one.")
        names = [name for name in _PER_ROW if all(getattr(part, name) is not None for part in parts)]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        if "weight" not in columns and any(part.weight is not None for part in parts):
            columns["weight"] = np.concatenate([part.weights for part in parts])
        return cls(**columns)

    def reweighted(self, weight: np.ndarray) -> "ScoreTable":
        """The same rows under other weights; what was sorted once stays sorted."""
        other = ScoreTable(**(self.columns() | {"weight": weight}))
        other.__dict__["orders"] = self.orders
        return other

    @cached_property
    def orders(self) -> dict[str, object]:
        """Orders of the rows by score, filled by `calibration.metrics`; they do not depend on the weights."""
        return {}

    def with_prevalence(self, pi: float) -> "ScoreTable":
        """The same rows weighted so that OOD has the share `pi` of the total weight, which stays as it was."""
        if not 0.0 <= pi < 1.0:
            raise TableError(f"The OOD prevalence must be at least 0 and below 1, not {pi!r}.")
        current = self.weights
        total, of_id = float(current.sum()), float(current[self.is_id].sum())
        of_ood = total - of_id
        if not self.n_id or of_id <= 0.0:
            raise TableError("The table has no ID row with weight, so no OOD prevalence below 1 can be stated.")
        if pi > 0.0 and (not self.n_ood or of_ood <= 0.0):
            raise TableError(f"The table has no OOD row with weight, so the OOD prevalence cannot be {pi}.")
        scale_ood = pi * total / of_ood if pi > 0.0 else 0.0
        scaled = np.where(self.is_id, current * ((1.0 - pi) * total / of_id), current * scale_ood)
        return self.reweighted(scaled)

    def fingerprint(self) -> str:
        """Sha256 (hex) of the contents: equal for equal tables, whatever file or order of columns they came in."""
        digest = hashlib.sha256()
        for name, column in self.columns().items():
            digest.update(f"{name}:{column.dtype.kind}:{column.shape}\n".encode())
            digest.update(_canonical_bytes(column))
        return digest.hexdigest()


def _correct(given: Any, prediction: np.ndarray | None, label: np.ndarray | None, is_id: np.ndarray) -> np.ndarray:
    """`correct` as stated, or from prediction and label; where both are given they must agree."""
    derived = None if prediction is None or label is None else _agreement(prediction, label) & is_id
    if given is None:
        if derived is None:
            raise TableError(
                "Column 'correct' is missing; give it, or both 'prediction' and 'label' to derive it from."
            )
        return np.asarray(derived)
    stated: np.ndarray = booleans("correct", given, missing=~is_id) & is_id
    if derived is not None and not np.array_equal(stated, derived):
        row = int(np.argmax(stated != derived))
        raise TableError(
            f"Column 'correct', row {row + 1}: {bool(stated[row])} contradicts prediction"
            f" {prediction[row]!s} and label {label[row]!s}; correct one of them or drop 'correct'."  # type: ignore[index]
        )
    return stated


def _agreement(prediction: np.ndarray, label: np.ndarray) -> np.ndarray:
    if prediction.dtype.kind != label.dtype.kind:
        raise TableError(
            f"Column 'prediction' holds {_kind(prediction)} and 'label' holds {_kind(label)}; use the same for both."
        )
    equal: np.ndarray = prediction == label
    return equal


def _kind(column: np.ndarray) -> str:
    return "whole numbers" if column.dtype.kind == "i" else "names"


def _canonical_bytes(column: np.ndarray) -> bytes:
    if column.dtype.kind == "f":
        values = column.astype("<f8", copy=True)
        values[np.isnan(values)] = np.nan  # one bit pattern for every NaN
        return values.tobytes()
    if column.dtype.kind in "iu":
        return column.astype("<i8").tobytes()
    if column.dtype.kind == "b":
        return column.tobytes()
    return "\x1f".join(column.tolist()).encode("utf-8", "surrogatepass")
