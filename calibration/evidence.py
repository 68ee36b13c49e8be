"""The documents inside a policy: what was measured, what is promised, on which data.

Every proportion is an `Estimate`: a value with an interval and the name of the method that made it. Undefined
values (the risk of a policy that accepted nothing) are null, never a made-up number.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from calibration.thresholds import OPEN, Threshold

IntervalMethod = Literal["clopper_pearson", "bootstrap"]
DoorName = Literal["s_id", "s_ood", "double"]


class Document(BaseModel):
    """A frozen part of a policy; unknown fields are errors, so that a typo never passes for a promise."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Estimate(Document):
    """A measured value with its interval at the evidence's level."""

    value: float | None
    low: float | None = None
    high: float | None = None
    method: IntervalMethod


class Outcome(Document):
    """What one pair of thresholds does on one split (Li et al., Eq. 2 and Eq. 7), as weighted counts and rates."""

    accepted: float
    true_accept: float
    false_accept_id: float
    false_accept_ood: float
    acceptance: Estimate
    precision: Estimate
    recall: Estimate
    f1: Estimate
    selective_risk: Estimate
    id_coverage: Estimate
    ood_acceptance: dict[str, Estimate] = Field(default_factory=dict)  # by group, and "all"


class SingleDoor(Document):
    """The same method with the other door left open, chosen and evaluated on the splits of the two-door policy."""

    tau: Threshold = OPEN
    refused: str | None = None  # why the method finds no policy with this door alone; no rates then
    f1: Estimate | None = None
    selective_risk: Estimate | None = None
    id_coverage: Estimate | None = None


class Gain(Document):
    """Two doors minus one on the same held-out rows, paired bootstrap."""

    over: Literal["s_id", "s_ood"]
    f1: Estimate
    id_coverage: Estimate
    selective_risk: Estimate


class TransferRow(Document):
    """One method of the threshold-transfer table (Li et al., Table 2)."""

    door: DoorName
    tau_id: Threshold
    tau_ood: Threshold
    f1_selected: float  # on the split and group it was chosen on
    f1: float  # the same thresholds on the other group, held out
    f1_optimal: float  # the best possible there, thresholds chosen on the test itself


class Transfer(Document):
    """Thresholds chosen with one OOD group, tested on another."""

    selected_on: str
    tested_on: str
    rows: tuple[TransferRow, ...]


class Claim(Document):
    """Something the policy says of itself, held against the held-out split."""

    what: str  # "selective risk ≤ 5 %"
    metric: str
    limit: float
    direction: Literal["at_most", "at_least"]
    held_out: Estimate
    met: bool  # False only when the whole interval lies on the wrong side
    within_error: bool  # True when the point estimate is on the wrong side and the interval is not


class Evidence(Document):
    """Everything measured on the evaluation split, which no selection or certificate has seen."""

    split: str = "evaluation"
    n: int
    n_id: int
    n_ood: int
    level: float = 0.95
    prevalence: float | None = None  # the OOD share the mixed rates are stated for
    outcome: Outcome
    single: dict[str, SingleDoor] = Field(default_factory=dict)  # "s_id", "s_ood"
    gains: tuple[Gain, ...] = ()
    claims: tuple[Claim, ...] = ()
    transfer: tuple[Transfer, ...] = ()
    notes: tuple[str, ...] = ()


class BudgetPoint(Document):
    """Selective risk at one OOD prevalence: the estimate and its upper bound."""

    prevalence: float
    risk: float
    upper: float


class Bounds(Document):
    """A rate with one-sided exact bounds."""

    value: float
    low: float
    high: float


class PrevalenceBudget(Document):
    """How much OOD traffic the policy can stand: the largest π at which R(π) ≤ risk is still certified."""

    risk: float
    delta: float
    pi_star: float | None  # None: the limit is not certified even without OOD, or no OOD data (id_only)
    id_only: bool
    id_acceptance: Bounds  # c
    id_error: Bounds  # r, among accepted ID
    ood_acceptance: Bounds | None  # a; None without OOD data
    curve: tuple[BudgetPoint, ...] = ()
    statement: str


class Certificate(Document):
    """What is promised, for which mix, with what probability."""

    kind: Literal["none", "sgr", "pareto"]
    scope: str  # "calibration mix only", "id_only", ...
    risk: float | None = None
    delta: float | None = None
    bound: float | None = None  # upper bound of the risk on the certification split at the level used
    accepted: int | None = None  # on the certification split
    wrong: int | None = None
    tests: int | None = None  # binary-search steps (sgr) or hypotheses walked (pareto)
    statement: str
    budget: PrevalenceBudget | None = None


class SplitRecord(Document):
    """One part of the data and what makes it recognisable."""

    n: int
    n_id: int
    n_ood: int
    fingerprint: str


class DataRecord(Document):
    """Where the evidence came from."""

    fingerprint: str  # of the whole table
    sources: tuple[str, ...] = ()
    n: int
    n_id: int
    n_ood: int
    accuracy: float
    not_finite: int = 0
    groups: dict[str, int] = Field(default_factory=dict)
    prevalence: float  # OOD share of the table
    weighted: bool = False
    seed: int
    stratified_by: tuple[str, ...] = ("is_id", "group")
    splits: dict[str, SplitRecord] = Field(default_factory=dict)
    quantile_levels: tuple[float, ...] = ()
    quantiles: dict[str, tuple[float, ...]] = Field(default_factory=dict)  # of s_id and s_ood, finite rows
