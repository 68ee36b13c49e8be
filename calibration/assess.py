"""The evidence of a policy on the evaluation split: its rates, its claims, and what a single door would have done."""

from typing import Literal

import numpy as np

from calibration.errors import SelectionRefused
from calibration.evidence import Evidence, Outcome, SingleDoor
from calibration.judge import accepted
from calibration.policy import ClassThresholds, Policy
from calibration.resample import LEVEL
from calibration.select.base import Parameters, Promise, Selector, stated_mix
from calibration.select.per_class import select_thresholds
from calibration.splits import Splits
from calibration.table import ScoreTable
from calibration.thresholds import OPEN
from calibration.transfer import transfer
from calibration.validate import claim, gain, hold_out, outcome

Door = Literal["s_id", "s_ood"]
DOORS: tuple[Door, ...] = ("s_id", "s_ood")


def assess(
    policy: Policy, selector: Selector, splits: Splits, parameters: Parameters, promises: tuple[Promise, ...]
) -> Evidence:
    """Judge a policy, and the same method with one door, on rows that neither has seen."""
    table = stated_mix(splits.evaluation, parameters)
    singles = {door: one_door(door, selector, splits, parameters) for door in DOORS}
    found = {door: single for door, single in singles.items() if isinstance(single, Policy)}
    held, *others = hold_out(table, [accepted(each, table) for each in (policy, *found.values())], parameters.seed)
    by_door = dict(zip(found, others, strict=True))
    return Evidence(
        n=len(table),
        n_id=table.n_id,
        n_ood=table.n_ood,
        level=LEVEL,
        prevalence=ood_share(table),
        outcome=outcome(held),
        single={
            door: _refused(single) if isinstance(single, str) else _measured(door, single, outcome(by_door[door]))
            for door, single in singles.items()
        },
        gains=tuple(gain(held, by_door[door], door) for door in found),
        claims=tuple(claim(promise, held, policy) for promise in promises),
        transfer=transfer(splits.selection, splits.evaluation),
    )


def one_door(door: Door, selector: Selector, splits: Splits, parameters: Parameters) -> Policy | str:
    """The method's own choice when the other score says nothing; the reason when it has none."""
    blind = Splits(**{name: _one_score(part, door) for name, part in splits.named().items()})
    try:
        selection, per_class = select_thresholds(selector, blind, parameters)
    except SelectionRefused as refusal:
        return str(refusal)
    return Policy(
        method=selector.name,
        tau_id=selection.tau_id if door == "s_id" else OPEN,
        tau_ood=selection.tau_ood if door == "s_ood" else OPEN,
        per_class=None if per_class is None else tuple(_opened(entry, door) for entry in per_class),
    )


def ood_share(table: ScoreTable) -> float:
    """The OOD share by weight."""
    total = float(table.weights.sum())
    return float(table.weights[~table.is_id].sum()) / total if total > 0 else 0.0


def _one_score(table: ScoreTable, door: Door) -> ScoreTable:
    """The other score made constant where both are finite; a row that can never be accepted stays so."""
    constant = np.where(table.finite, 0.0, np.nan)
    return ScoreTable(**(table.columns() | {"s_ood" if door == "s_id" else "s_id": constant}))


def _opened(entry: ClassThresholds, door: Door) -> ClassThresholds:
    return entry.model_copy(update={"tau_ood" if door == "s_id" else "tau_id": OPEN})


def _measured(door: Door, single: Policy, found: Outcome) -> SingleDoor:
    return SingleDoor(
        tau=single.tau_id if door == "s_id" else single.tau_ood,
        f1=found.f1,
        selective_risk=found.selective_risk,
        id_coverage=found.id_coverage,
    )


def _refused(reason: str) -> SingleDoor:
    return SingleDoor(refused=reason)
