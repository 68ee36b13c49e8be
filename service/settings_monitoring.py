"""Settings of metrics, monitors and the ledger."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator


class MonitoringSettings(BaseModel):
    """What is watched and kept; off means no metrics route, no monitors and no ledger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(True, description="metrics, monitors and ledger")

    alpha: float = Field(0.01, gt=0, le=0.5, description="chance that an alarm is ever false, for each kind of alarm")
    tolerance: float = Field(
        0.01, ge=0, lt=0.5, description="a shift of a rate by less than this is not worth an alarm"
    )
    baseline: Literal["calibration", "live"] = Field(
        "calibration", description="what is normal: the policy's evidence, or the first decisions under the policy"
    )
    baseline_decisions: int = Field(2000, ge=100, description="decisions a live baseline is measured on")
    expected_acceptance: tuple[float, float] | None = Field(
        None, description="the acceptance rates that are normal, low and high; unset: as the baseline says"
    )
    risk_limit: float | None = Field(
        None, gt=0, lt=1, description="selective risk worth an alarm; unset: what the policy promises"
    )
    poll_seconds: float = Field(2.0, ge=0.05, le=60, description="how often the monitors are evaluated")
    clear_seconds: float = Field(1800, ge=0, description="a passing alarm is cleared after this much quiet time")
    near_mass: float = Field(
        0.02, gt=0, lt=0.5, description="near the threshold: within this share of the calibration scores"
    )
    top_classes: int = Field(20, ge=0, le=1000, description="classes with a metric of their own; the rest is `other`")

    audit_share: float = Field(0.01, ge=0, le=1, description="share of accepted items drawn for labelling")
    audit_share_rejected: float = Field(0.01, ge=0, le=1, description="share of rejected items drawn for labelling")

    ledger: bool = Field(True, description="record decisions and labels")
    ledger_url: SecretStr | None = Field(None, description="SQLAlchemy URL; unset: SQLite in the state directory")
    ledger_inputs: Literal["none", "audit", "all"] = Field(
        "none", description="inputs kept beside their decisions: none, those drawn for labelling, or all"
    )
    ledger_flush_seconds: float = Field(
        0.1, gt=0, le=60, description="how long decisions gather before a commit; they are counted twice a second"
    )
    ledger_queue: int = Field(50_000, ge=100, description="decisions that wait for the ledger at most, per worker")
    ledger_retention_days: float = Field(30, gt=0, description="unlabelled decisions are kept this long")
    ledger_labelled_days: float = Field(365, gt=0, description="labelled decisions are kept this long")
    ledger_max_rows: int = Field(5_000_000, ge=1000, description="the oldest decisions beyond this many are deleted")
    ledger_max_bytes: int = Field(
        2 * 1024**3, ge=1024**2, description="SQLite: the oldest decisions are deleted when the file holds more"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "MonitoringSettings":
        if self.expected_acceptance is not None:
            low, high = self.expected_acceptance
            if not 0 <= low <= high <= 1:
                raise ValueError(
                    f"expected_acceptance is two rates in order, 0 ≤ low ≤ high ≤ 1; {low}, {high} arrived"
                )
        return self
