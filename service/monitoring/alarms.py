"""An alarm: raised by evidence, kept with its time and reasons, cleared by quiet or by hand."""

from dataclasses import dataclass, field
from typing import Any

KINDS = ("acceptance", "acceptance_recent", "selective_risk", "score_s_id", "score_s_ood")
LATCHED = ("acceptance", "selective_risk")  # about the policy's whole life: only another policy or a hand clears them


@dataclass
class Alarm:
    """The state of one kind of alarm; times are Unix seconds."""

    kind: str
    raised: bool = False
    since: float | None = None
    confirmed: float | None = None  # the last time the evidence reached the mark again
    cleared: float | None = None
    times: int = 0
    quiet_trials: int = 0  # trials without new evidence after which it may be cleared
    evidence: dict[str, Any] = field(default_factory=dict)

    def strike(self, now: float, evidence: dict[str, Any], quiet_trials: int = 0) -> None:
        """The evidence reached the mark."""
        if not self.raised:
            self.raised, self.since, self.times = True, now, self.times + 1
        self.confirmed, self.evidence, self.quiet_trials = now, evidence, quiet_trials

    def clear(self, now: float) -> None:
        """All is quiet again."""
        if self.raised:
            self.raised, self.cleared = False, now

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self), "evidence": dict(self.evidence)}
