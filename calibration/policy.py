"""A policy: two thresholds, what they promise and the evidence for it; and the one place that applies them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from calibration.errors import PolicyError
from calibration.evidence import Certificate, DataRecord, Evidence
from calibration.thresholds import OPEN, Threshold

SCHEMA_VERSION = 1
REASONS: tuple[str | None, ...] = (None, "low_id", "low_ood", "low_both", "not_finite")
NOT_FINITE = 4

# Up to this many rows a plain loop beats the fixed cost of a dozen numpy calls (measured: 3 against 6 µs at one row).
_FEW = 8

Status = Literal["candidate", "validated", "rejected"]
Scores = Sequence[float] | NDArray[np.floating]


class Decisions(NamedTuple):
    """One verdict a row: `accept`, and `reason` as an index into `REASONS` (0 where accepted)."""

    accept: NDArray[np.bool_]
    reason: NDArray[np.uint8]

    @property
    def reasons(self) -> list[str | None]:
        """The reasons in words, None where accepted."""
        return [REASONS[code] for code in self.reason.tolist()]


class ClassThresholds(BaseModel):
    """The doors of one predicted class."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: int = Field(ge=0)
    tau_id: Threshold
    tau_ood: Threshold


@dataclass(frozen=True, eq=False)
class _Lookup:
    """Per-class doors as arrays; the last entry is the policy's own pair, for a class without one."""

    pairs: dict[int, tuple[float, float]]
    tau_id: NDArray[np.float64]
    tau_ood: NDArray[np.float64]


class Policy(BaseModel):
    """Thresholds with their evidence; JSON on disk, frozen in memory.

    `Policy(tau_id=0.9, tau_ood=-3.1)` is a candidate that promises nothing; `airlock calibrate` makes the rest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: Literal[1] = 1
    number: int | None = Field(default=None, ge=1)
    status: Status = "candidate"
    status_reasons: tuple[str, ...] = ()
    method: str = "manual"
    tau_id: Threshold
    tau_ood: Threshold
    per_class: tuple[ClassThresholds, ...] | None = None
    scores: dict[str, str] = Field(default_factory=dict)
    bundle: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: DataRecord | None = None
    evidence: Evidence | None = None
    certificate: Certificate | None = None
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    note: str | None = None

    @model_validator(mode="after")
    def _one_entry_a_class(self) -> "Policy":
        labels = [entry.label for entry in self.per_class or ()]
        if len(set(labels)) != len(labels):
            raise ValueError("per_class names a class twice")
        return self

    @classmethod
    def from_json(cls, document: bytes | str, *, source: str = "the policy") -> "Policy":
        """Parse a policy; one sentence says what is wrong with a bad one."""
        try:
            return cls.model_validate_json(document)
        except ValidationError as error:
            raise PolicyError(f"{source} is not a valid policy: {_first_fault(error)}") from error

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any], *, source: str = "the policy") -> "Policy":
        """The same from a parsed JSON object."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise PolicyError(f"{source} is not a valid policy: {_first_fault(error)}") from error

    @classmethod
    def read(cls, path: str | Path, *, bundle: str | None = None) -> "Policy":
        """Read a policy file; with `bundle`, a policy made for another bundle is refused."""
        try:
            document = Path(path).read_bytes()
        except OSError as error:
            raise PolicyError(f"cannot read the policy {path}: {error.strerror}") from error
        policy = cls.from_json(document, source=f"{path}")
        policy.check_bundle(bundle)
        return policy

    def to_json(self) -> bytes:
        """The document as it is stored: indented, floats with every digit they need."""
        return self.model_dump_json(indent=2).encode() + b"\n"

    def write(self, path: str | Path) -> None:
        """Write the policy to a file of its own, whole or not at all."""
        from calibration.store import write_atomic

        write_atomic(Path(path), self.to_json())

    def check_bundle(self, bundle: str | None) -> None:
        """Refuse a policy whose thresholds belong to another bundle's scores."""
        if bundle is not None and self.bundle is not None and self.bundle != bundle:
            raise PolicyError(
                f"policy {self.name} was made for bundle {self.bundle[:12]}…, this is bundle {bundle[:12]}…; "
                "its thresholds mean nothing here: calibrate this bundle"
            )

    @property
    def name(self) -> str:
        """How the policy is called in responses and logs: its number in the store, four digits."""
        return "(not stored)" if self.number is None else f"{self.number:04d}"

    def decide(
        self,
        s_id: Scores,
        s_ood: Scores,
        finite: Sequence[bool] | NDArray[np.bool_] | None = None,
        label: Sequence[int] | NDArray[np.integer] | None = None,
    ) -> Decisions:
        """Accept ⇔ both scores finite ∧ s_ood ≥ τ_ood ∧ s_id ≥ τ_id; `finite` is the graph's own guard.

        `label` (the predicted class) is needed by a policy with per-class thresholds only.
        """
        if len(s_id) != len(s_ood):
            raise PolicyError(f"s_id has {len(s_id)} rows and s_ood has {len(s_ood)}; they must be equal")
        if self.per_class is not None and label is None:
            raise PolicyError("this policy has per-class thresholds: pass the predicted labels to decide")
        if len(s_id) <= _FEW:
            return self._decide_few(s_id, s_ood, finite, label)
        return self._decide_many(s_id, s_ood, finite, label)

    def thresholds(self, label: int | None = None) -> tuple[float, float]:
        """(τ_id, τ_ood) that judge an item with this predicted label."""
        if self.per_class is None or label is None:
            return self.tau_id, self.tau_ood
        return self._lookup.pairs.get(int(label), (self.tau_id, self.tau_ood))

    def doors(self, label: Sequence[int] | NDArray[np.integer]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(τ_id, τ_ood) of every item by its predicted label; a class without its own pair gets the policy's."""
        lookup = self._lookup
        last = len(lookup.tau_id) - 1
        known = np.asarray(label)
        index = np.where((known >= 0) & (known < last), known, last)
        return lookup.tau_id[index], lookup.tau_ood[index]

    def _decide_few(self, s_id: Any, s_ood: Any, finite: Any, label: Any) -> Decisions:
        n = len(s_id)
        guards = [True] * n if finite is None else _plain(finite)
        if self.per_class is None:
            pairs = [(self.tau_id, self.tau_ood)] * n
        else:
            pairs = [self.thresholds(k) for k in _plain(label)]
        codes = [
            (a < tau_id) + 2 * (b < tau_ood) if guard and isfinite(a) and isfinite(b) else NOT_FINITE
            for a, b, guard, (tau_id, tau_ood) in zip(_plain(s_id), _plain(s_ood), guards, pairs, strict=True)
        ]
        reason = np.array(codes, dtype=np.uint8)
        return Decisions(reason == 0, reason)

    def _decide_many(self, s_id: Any, s_ood: Any, finite: Any, label: Any) -> Decisions:
        a = np.asarray(s_id, dtype=np.float64)
        b = np.asarray(s_ood, dtype=np.float64)
        tau_id: Any = self.tau_id
        tau_ood: Any = self.tau_ood
        if self.per_class is not None:
            tau_id, tau_ood = self.doors(label)
        reason = (a < tau_id).view(np.uint8) + ((b < tau_ood).view(np.uint8) << 1)
        guard = np.isfinite(a) & np.isfinite(b)
        if finite is not None:
            guard &= np.asarray(finite, dtype=bool)
        reason[~guard] = NOT_FINITE
        return Decisions(reason == 0, reason)

    @cached_property
    def _lookup(self) -> _Lookup:
        pairs = {entry.label: (entry.tau_id, entry.tau_ood) for entry in self.per_class or ()}
        size = max(pairs, default=-1) + 2
        tau_id = np.full(size, self.tau_id)
        tau_ood = np.full(size, self.tau_ood)
        for k, (first, second) in pairs.items():
            tau_id[k], tau_ood[k] = first, second
        return _Lookup(pairs, tau_id, tau_ood)


def _plain(values: Any) -> list[Any]:
    """Python scalars: comparing them is ten times cheaper than comparing numpy's."""
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def _first_fault(error: ValidationError) -> str:
    """The first fault of a pydantic report as a sentence: where, what is allowed, what arrived."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"]) or "document"
    if where == "schema_version":
        return f"schema_version {fault['input']!r} is unknown, this version reads {SCHEMA_VERSION}; upgrade airlock"
    if fault["type"] == "json_invalid":
        return fault["msg"]
    if fault["type"] in {"missing", "extra_forbidden"}:
        return f"{where}: {fault['msg'].lower()}"
    arrived = repr(fault["input"])
    shown = arrived if len(arrived) <= 60 else arrived[:57] + "..."
    return f"{where}: {fault['msg'].removeprefix('Value error, ')} ({shown} arrived)"


__all__ = ["NOT_FINITE", "OPEN", "REASONS", "ClassThresholds", "Decisions", "Policy", "Status"]
