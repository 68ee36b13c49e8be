"""The report as data: what the page shows, and what `--json` writes.

The JSON schema of `ReportDocument` is the file format; `schema_version` changes when a field changes its meaning.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibration.evidence import PrevalenceBudget, Transfer


class Part(BaseModel):
    """A frozen part of the report."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Share(Part):
    """A proportion with its 95 % Clopper-Pearson interval; null bounds where rows have weights."""

    value: float | None
    low: float | None
    high: float | None


class Decisions(Part):
    """Outcomes of a set of rows, by weight (Li et al., section 3.1)."""

    rows: int
    true_accept: float
    false_accept_id: float
    false_accept_ood: float
    false_reject: float = Field(description="ID rows that were not correctly accepted")
    true_reject: float = Field(description="OOD rows that were rejected")
    accepted: float
    acceptance: Share
    risk: Share
    precision: float | None
    recall: float | None
    f1: float | None
    coverage: Share
    ood_acceptance: Share


class KindRow(Part):
    """What becomes of one kind of sample, by weight: accepted, or the reason why not."""

    name: str
    rows: int
    accepted: float
    low_id: float
    low_ood: float
    low_both: float
    not_finite: float


class ClassRow(Part):
    """One predicted class."""

    name: str
    rows: int
    accepted: int
    acceptance: Share
    risk: Share
    wrong_id: int
    ood: int


class OperatingPoint(Part):
    """What each gate reaches at the same limit; coverage is the accepted share of ID for all three."""

    what: Literal["coverage_at_risk", "risk_at_coverage"]
    at: float
    double: float | None
    s_id: float | None
    s_ood: float | None


class PolicySummary(Part):
    """The thresholds that the report judges, and where they come from."""

    source: str
    number: int | None
    method: str
    status: str | None
    tau_id: float | None = Field(description="null: the door is open")
    tau_ood: float | None
    per_class: bool
    bundle: str | None
    scores: dict[str, str]
    certificate: str | None
    scope: str | None
    calibrated_on: str | None = Field(description="fingerprint of the table the policy was calibrated on")


class TableSummary(Part):
    """One score table."""

    name: str
    rows: int
    n_id: int
    n_ood: int
    not_finite: int
    groups: dict[str, int]
    weighted: bool
    fingerprint: str


class MethodRow(Part):
    """One table of a comparison: a value per metric and group, e.g. {"near": {"ds_f1": 0.9}}."""

    name: str
    values: dict[str, dict[str, float | None]]
    average_rank: float | None = None


class PairedDifference(Part):
    """A metric of one table minus that of the best one, paired bootstrap over the same samples."""

    method: str
    against: str
    metric: str
    difference: float
    low: float
    high: float


class RankTest(Part):
    """Friedman, Iman-Davenport and Conover-Holm over the blocks (group × metric)."""

    blocks: list[str]
    friedman: float
    friedman_p: float
    iman_davenport: float | None = Field(description="null: infinite, every block ranks the methods alike")
    iman_davenport_p: float
    alpha: float
    significant: bool = Field(description="whether the methods differ at all; if not, one clique holds them all")
    adjusted_p: list[list[float]] = Field(description="by pair, in the order of `methods`")
    cliques: list[list[str]]


class ComparisonSection(Part):
    """Several score pairs, models or recipes on the same data."""

    metrics: list[str]
    higher_is_better: dict[str, bool]
    methods: list[MethodRow]
    differences: list[PairedDifference]
    unpaired: str | None = Field(None, description="why there are no paired differences, where there are none")
    ranks: RankTest | None = None
    no_ranks: str | None = Field(None, description="why there is no rank test, where there is none")
    notes: list[str] = []


class ReportDocument(Part):
    """Everything the report says."""

    schema_version: Literal[1] = 1
    title: str
    created_at: str
    verdict: list[str]
    notes: list[str]
    policy: PolicySummary
    table: TableSummary
    decisions: dict[str, Decisions]
    by_kind: list[KindRow]
    per_class: list[ClassRow]
    operating: list[OperatingPoint]
    metrics: dict[str, Any] = Field(description="as `airlock evaluate --json`")
    prevalence: PrevalenceBudget | None
    transfer: list[Transfer]
    comparison: ComparisonSection | None
    provenance: dict[str, Any]


def json_schema() -> dict[str, Any]:
    """The schema of what is written: thresholds that are open are null there."""
    return ReportDocument.model_json_schema(mode="serialization")
