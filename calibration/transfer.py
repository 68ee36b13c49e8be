"""How thresholds chosen with one kind of OOD carry over to another, with two doors or one (Li et al., Table 2)."""

import numpy as np

from calibration.best import Best, best_f1
from calibration.evidence import DoorName, Transfer, TransferRow
from calibration.resample import accepted_by, rates
from calibration.table import ScoreTable

DOORS: tuple[DoorName, ...] = ("s_id", "s_ood", "double")


def transfer(selection: ScoreTable, evaluation: ScoreTable) -> tuple[Transfer, ...]:
    """Every ordered pair of OOD groups: chosen with one on the selection split, tested with the other, held out."""
    names = _shared_groups(selection, evaluation)
    chosen = {name: _all_doors(_with_group(selection, name)) for name in names}
    tests = {name: _with_group(evaluation, name) for name in names}
    optimal = {name: _all_doors(tests[name]) for name in names}
    return tuple(
        Transfer(
            selected_on=source,
            tested_on=target,
            rows=tuple(_row(door, chosen[source][door], tests[target], optimal[target][door]) for door in DOORS),
        )
        for source in names
        for target in names
        if source != target
    )


def _row(door: DoorName, chosen: Best, test: ScoreTable, optimal: Best) -> TransferRow:
    found = rates(test, accepted_by(test, chosen.tau_id, chosen.tau_ood))
    return TransferRow(
        door=door,
        tau_id=chosen.tau_id,
        tau_ood=chosen.tau_ood,
        f1_selected=chosen.f1,
        f1=float(found.f1[0]),
        f1_optimal=optimal.f1,
    )


def _all_doors(table: ScoreTable) -> dict[DoorName, Best]:
    return {door: best_f1(table, door) for door in DOORS}


def _with_group(table: ScoreTable, name: str) -> ScoreTable:
    """ID and one OOD group."""
    assert table.group is not None
    return table.take(table.is_id | (table.group == name))


def _shared_groups(selection: ScoreTable, evaluation: ScoreTable) -> list[str]:
    if selection.group is None or evaluation.group is None:
        return []
    found = [np.unique(part.group[~part.is_id]) for part in (selection, evaluation)]  # type: ignore[index]
    return [str(name) for name in np.intersect1d(found[0], found[1])]
