"""A new policy against the active one, on rows that the new one has not seen."""

from calibration.evidence import Document, Estimate, Outcome
from calibration.judge import Diff, accepted
from calibration.policy import Policy
from calibration.select.base import Goal
from calibration.table import ScoreTable
from calibration.thresholds import OPEN
from calibration.validate import difference, hold_out, outcome


class Comparison(Document):
    """Old and new on the same held-out rows; differences are new minus old, paired bootstrap."""

    n: int
    changed: int
    new_accepts: int
    new_rejects: int
    old: Outcome
    f1: Estimate
    id_coverage: Estimate
    selective_risk: Estimate
    better: bool
    why: str

    @property
    def diff(self) -> Diff:
        """The decisions that change."""
        return Diff(self.n, self.new_accepts, self.new_rejects)


def compare(old: Policy, new: Policy, table: ScoreTable, *, goal: Goal, seed: int) -> Comparison:
    """Judge both on held-out rows; better means clearly better in what the new policy is made for."""
    before, after = hold_out(table, [accepted(old, table), accepted(new, table)], seed)
    changes = {name: difference(after, before, name) for name in ("f1", "id_coverage", "selective_risk")}
    old_outcome = outcome(before)
    better, why = _verdict(goal, new, old_outcome, changes)
    if better and _forgets_ood(old, table):
        better, why = False, f"{why}, but these rows have no OOD and the active policy was made to keep OOD out"
    diff = Diff.between(old, new, table)
    return Comparison(
        n=diff.n,
        changed=diff.changed,
        new_accepts=diff.new_accepts,
        new_rejects=diff.new_rejects,
        old=old_outcome,
        better=better,
        why=why,
        **changes,
    )


def _forgets_ood(old: Policy, table: ScoreTable) -> bool:
    """Whether the rows are blind to what the active policy's OOD door is for.

    On ID alone every closed OOD door only costs coverage, so an open one would always win.
    """
    sees_ood = bool(table.weights[~table.is_id].sum() > 0.0)
    knew_ood = old.tau_ood != OPEN and (old.data is None or old.data.n_ood > 0)
    return knew_ood and not sees_ood


def _verdict(goal: Goal, new: Policy, old: Outcome, changes: dict[str, Estimate]) -> tuple[bool, str]:
    """A policy that breaks the limit asked for loses; otherwise the goal must improve beyond chance."""
    limits = {claim.metric: claim.limit for claim in (new.evidence.claims if new.evidence else ())}
    if goal == "coverage":
        held = old.selective_risk
        if held.low is not None and held.low > limits.get("selective_risk", 1.0):
            return True, f"the active policy breaks the risk limit on the new data ({held.value:.2%})"
        return _beyond_chance(changes["id_coverage"], "ID coverage", rises=True)
    if goal == "risk":
        kept = old.id_coverage
        if kept.high is not None and kept.high < limits.get("id_coverage", 0.0):
            return True, f"the active policy keeps too little ID on the new data ({kept.value:.2%})"
        return _beyond_chance(changes["selective_risk"], "selective risk", rises=False)
    return _beyond_chance(changes["f1"], "F1", rises=True)


def _beyond_chance(change: Estimate, name: str, *, rises: bool) -> tuple[bool, str]:
    if change.value is None or change.low is None or change.high is None:
        return False, f"{name} cannot be compared: one of the policies accepts nothing"
    shown = f"{name} {change.value:+.4f} ({change.low:+.4f} to {change.high:+.4f})"
    if (change.low > 0) if rises else (change.high < 0):
        return True, shown
    return False, f"{shown}: no clear gain"
