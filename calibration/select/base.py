"""What every selector takes and gives: parameters and splits in, thresholds with their claims out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from calibration.errors import SelectionRefused
from calibration.evidence import Certificate
from calibration.splits import Splits
from calibration.table import ScoreTable

DEFAULT_RISK = 0.05
FEWEST_ID = 50  # ID samples in the selection and in the evaluation split, below which a rate means little

Goal = Literal["f1", "coverage", "risk"]
Metric = Literal["selective_risk", "id_coverage", "f1", "ood_door_tpr", "id_door_tpr"]


@dataclass(frozen=True)
class Parameters:
    """What a user may ask of a selector; None leaves the selector's own default."""

    risk: float | None = None
    delta: float = 0.05
    prevalence: float | None = None
    min_coverage: float | None = None
    split: str | None = None
    seed: int = 0
    per_class: bool = False

    def __post_init__(self) -> None:
        for name, low_ok in (("risk", False), ("delta", False), ("prevalence", True), ("min_coverage", False)):
            value = getattr(self, name)
            if value is not None and not (0 < value < 1 or (low_ok and value == 0)):
                interval = "[0, 1)" if low_ok else "(0, 1)"
                raise SelectionRefused(f"{name} must lie in {interval}, {value} arrived")

    @property
    def risk_limit(self) -> float:
        """The selective risk to hold: what was asked, else 5 %."""
        return DEFAULT_RISK if self.risk is None else self.risk

    def with_delta(self, delta: float) -> "Parameters":
        """The same with another share of the error probability."""
        return replace(self, delta=delta)


@dataclass(frozen=True)
class Promise:
    """A claim before it meets the held-out split."""

    metric: Metric
    limit: float
    direction: Literal["at_most", "at_least"]


@dataclass(frozen=True)
class Selection:
    """Chosen thresholds, what they claim and how they were found."""

    tau_id: float
    tau_ood: float
    promises: tuple[Promise, ...] = ()
    certificate: Certificate | None = None
    details: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # approximations a reader should know of


class Selector(ABC):
    """One way to choose thresholds; register it in `calibration.select` and the contract tests run over it."""

    name: ClassVar[str]
    summary: ClassVar[str]
    goal: ClassVar[Goal]  # what a better policy of this method has more (or, for risk, less) of
    certifies: ClassVar[bool] = False  # needs a certification split of its own
    default_split: ClassVar[str] = "50/50"

    @abstractmethod
    def select(self, splits: Splits, parameters: Parameters) -> Selection:
        """Choose thresholds on the selection split (and certify them on the certification split)."""


def stated_mix(table: ScoreTable, parameters: Parameters) -> ScoreTable:
    """The table weighted for the stated OOD prevalence, or as it is."""
    return table if parameters.prevalence is None else table.with_prevalence(parameters.prevalence)


def check_enough_id(splits: Splits, shares: tuple[float, ...]) -> None:
    """Refuse splits in which a rate would be guesswork, with the number of ID samples that would do."""
    needed = max(-(-FEWEST_ID // share) for share in (shares[0], shares[-1]))
    total = sum(part.n_id for part in splits.named().values())
    if min(splits.selection.n_id, splits.evaluation.n_id) < FEWEST_ID:
        raise SelectionRefused(
            f"{total} ID samples are too few: the selection and evaluation splits need {FEWEST_ID} each, "
            f"so bring at least {int(needed)} ID samples"
        )
