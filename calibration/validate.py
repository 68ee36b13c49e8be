"""Held-out validation: every rate with its interval, every claim against the evidence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration.binomial import clopper_pearson
from calibration.evidence import Claim, Estimate, Gain, Outcome
from calibration.judge import predicted_classes
from calibration.policy import Policy
from calibration.resample import LEVEL, Rates, bootstrap, interval, rates
from calibration.select.base import Promise
from calibration.splits import has_weights
from calibration.table import ScoreTable


@dataclass(frozen=True)
class HeldOut:
    """Fixed decisions on the evaluation split, with bootstrap draws that are shared by all that is compared."""

    table: ScoreTable  # weighted for the stated mix
    accept: NDArray[np.bool_]
    rates: Rates
    drawn: Rates

    def estimate(self, name: str) -> Estimate:
        """A rate of the whole mix: exact where rows count the same, else by bootstrap."""
        if name == "f1" or has_weights(self.table):
            return self._by_bootstrap(name)
        return exact(*self._counts(name))

    def id_rate(self, rows: NDArray[np.bool_], among: NDArray[np.bool_] | None = None) -> Estimate:
        """The share of rows among ID (or a part of it), exact unless ID rows differ in weight."""
        base = self.table.is_id if among is None else among
        return _share(self.table, rows & base, base)

    def ood_rate(self, base: NDArray[np.bool_]) -> Estimate:
        """The accepted share of some OOD rows."""
        return _share(self.table, self.accept & base, base)

    def _by_bootstrap(self, name: str) -> Estimate:
        value = float(getattr(self.rates, name)[0])
        bounds = interval(getattr(self.drawn, name)) or (None, None)
        return Estimate(value=value if np.isfinite(value) else None, low=bounds[0], high=bounds[1], method="bootstrap")

    def _counts(self, name: str) -> tuple[int, int]:
        right, taken = int((self.accept & self.table.correct).sum()), int(self.accept.sum())
        counts = {
            "precision": (right, taken),
            "selective_risk": (taken - right, taken),
            "acceptance": (taken, len(self.table)),
        }
        return counts[name]


def exact(events: int, trials: int) -> Estimate:
    """A proportion with its Clopper-Pearson interval; undefined without trials."""
    low, high = clopper_pearson(events, trials, LEVEL) if trials else (None, None)
    return Estimate(value=events / trials if trials else None, low=low, high=high, method="clopper_pearson")


def hold_out(table: ScoreTable, accepts: Sequence[NDArray[np.bool_]], seed: int) -> list[HeldOut]:
    """Several decision vectors on one split, drawn together."""
    drawn = bootstrap(table, accepts, seed=seed)
    return [HeldOut(table, accept, rates(table, accept), d) for accept, d in zip(accepts, drawn, strict=True)]


def outcome(held: HeldOut) -> Outcome:
    """Counts and rates of one policy (Li et al., Eq. 2, 4 and 7)."""
    table, accept, weights = held.table, held.accept, held.table.weights
    of_id = accept & table.is_id

    def total(rows: NDArray[np.bool_]) -> float:
        return float(weights[rows].sum())

    return Outcome(
        accepted=total(accept),
        true_accept=total(accept & table.correct),
        false_accept_id=total(of_id & ~table.correct),
        false_accept_ood=total(accept & ~table.is_id),
        acceptance=held.estimate("acceptance"),
        precision=held.estimate("precision"),
        recall=held.id_rate(accept & table.correct),
        f1=held.estimate("f1"),
        selective_risk=held.estimate("selective_risk"),
        id_coverage=held.id_rate(accept),
        ood_acceptance=_by_group(held),
    )


def gain(policy: HeldOut, single: HeldOut, over: Literal["s_id", "s_ood"]) -> Gain:
    """Held-out rates of two doors minus one, paired."""
    names = ("f1", "id_coverage", "selective_risk")
    return Gain(over=over, **{name: difference(policy, single, name) for name in names})


def difference(new: HeldOut, old: HeldOut, name: str) -> Estimate:
    """A rate of one policy minus that of another on the same rows and the same draws."""
    value = float(getattr(new.rates, name)[0] - getattr(old.rates, name)[0])
    low, high = interval(getattr(new.drawn, name) - getattr(old.drawn, name)) or (None, None)
    return Estimate(value=value if np.isfinite(value) else None, low=low, high=high, method="bootstrap")


def claim(promise: Promise, held: HeldOut, policy: Policy) -> Claim:
    """Hold a promise against the held-out split: missed when the whole interval lies on the wrong side."""
    measured = _measure(promise, held, policy)
    at_most = promise.direction == "at_most"
    limit, value = promise.limit, measured.value
    if value is None or measured.low is None or measured.high is None:
        met, beyond = False, True
    else:
        met = measured.low <= limit if at_most else measured.high >= limit
        beyond = value > limit if at_most else value < limit
    return Claim(
        what=wording(promise),
        metric=promise.metric,
        limit=limit,
        direction=promise.direction,
        held_out=measured,
        met=met,
        within_error=met and beyond,
    )


def wording(promise: Promise) -> str:
    """The promise as a phrase."""
    sign = "≤" if promise.direction == "at_most" else "≥"
    if promise.metric == "f1":
        return f"F1 {sign} {promise.limit:.3f}"
    names = {
        "selective_risk": "selective risk",
        "id_coverage": "ID coverage",
        "ood_door_tpr": "ID passing the OOD door",
        "id_door_tpr": "correct ID passing the ID door",
    }
    return f"{names[promise.metric]} {sign} {100 * promise.limit:.3g} %"


def _measure(promise: Promise, held: HeldOut, policy: Policy) -> Estimate:
    table = held.table
    measures: dict[str, Callable[[], Estimate]] = {
        "f1": lambda: held.estimate("f1"),
        "selective_risk": lambda: held.estimate("selective_risk"),
        "id_coverage": lambda: held.id_rate(held.accept),
        "ood_door_tpr": lambda: held.id_rate(_passes(policy, table, "s_ood")),
        "id_door_tpr": lambda: held.id_rate(_passes(policy, table, "s_id"), table.correct),
    }
    return measures[promise.metric]()


def _passes(policy: Policy, table: ScoreTable, door: str) -> NDArray[np.bool_]:
    """The rows that one door alone lets through."""
    labels = np.zeros(len(table), dtype=np.int64) if policy.per_class is None else predicted_classes(table)
    tau_id, tau_ood = policy.doors(labels)
    passes: NDArray[np.bool_] = table.s_id >= tau_id if door == "s_id" else table.s_ood >= tau_ood
    return table.finite & passes


def _by_group(held: HeldOut) -> dict[str, Estimate]:
    ood = ~held.table.is_id
    if not ood.any():
        return {}
    found = {"all": held.ood_rate(ood)}
    if held.table.group is not None:
        for name in np.unique(held.table.group[ood]).tolist():
            found[str(name)] = held.ood_rate(ood & (held.table.group == name))
    return found


def _share(table: ScoreTable, rows: NDArray[np.bool_], base: NDArray[np.bool_]) -> Estimate:
    """A share of rows; with unequal weights inside the base, a bootstrap of the weighted share."""
    weights = table.weights[base]
    if len(weights) == 0 or np.ptp(weights) == 0:
        return exact(int(np.count_nonzero(rows)), int(np.count_nonzero(base)))
    inside = ScoreTable(
        s_id=table.s_id[base],
        s_ood=table.s_ood[base],
        is_id=np.ones(len(weights), bool),
        correct=rows[base],
        weight=weights,
    )
    value = rates(inside, rows[base])
    low, high = interval(bootstrap(inside, [rows[base]], seed=0)[0].recall) or (None, None)
    return Estimate(value=float(value.recall[0]), low=low, high=high, method="bootstrap")


__all__ = ["HeldOut", "claim", "difference", "exact", "gain", "hold_out", "outcome", "wording"]
