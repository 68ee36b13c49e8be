"""Several score tables side by side (Li et al., Tables 1 and 3), with what their differences are worth."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from calibration.metrics import (
    Undefined,
    accuracy,
    ds_f1,
    f1,
    group_tables,
    one_gate_aurc,
    ood,
)
from calibration.metrics.curve import envelope
from calibration.metrics.double_aurc import GRID, double_risk_coverage
from calibration.report.differences import paired_differences
from calibration.report.document import ComparisonSection, MethodRow, RankTest
from calibration.report.measures import EXACT_ROWS
from calibration.report.ranks import rank_methods
from calibration.report.tables import NamedTable
from calibration.table import ScoreTable

Metric = Callable[[ScoreTable], float]


def joint_area(table: ScoreTable) -> float:
    """DS-AURC by the envelope; of a large table from a grid of tau_ood."""
    return envelope(double_risk_coverage(table, grid=GRID if len(table) > EXACT_ROWS else None))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "ds_f1": lambda table: ds_f1(table).value,
    "f1_s_id": lambda table: f1(table, "s_id").value,
    "f1_s_ood": lambda table: f1(table, "s_ood").value,
    "ds_aurc": joint_area,
    "aurc_s_id": lambda table: one_gate_aurc(table, "s_id", "envelope"),
    "aurc_s_ood": lambda table: one_gate_aurc(table, "s_ood", "envelope"),
    "ood_auroc": lambda table: ood(table).auroc,
}
LOWER_IS_BETTER = frozenset({"ds_aurc", "aurc_s_id", "aurc_s_ood"})
JOINT = ("ds_f1", "ds_aurc")
"""The metrics of both doors: a block of the rank test is one of them on one group."""
WHOLE = "all"


def compare_tables(tables: Sequence[NamedTable], seed: int = 0) -> ComparisonSection:
    """Every metric of every table on every group, the differences to the best and the ranks."""
    parts = [_parts(named.table) for named in tables]
    groups = [name for name in parts[0] if all(name in other for other in parts)]
    methods = [
        MethodRow(name=named.name, values={group: _values(part[group]) for group in groups})
        for named, part in zip(tables, parts, strict=True)
    ]
    best = {metric: _best(methods, metric) for metric in JOINT}
    values = {metric: [row.values[WHOLE][metric] for row in methods] for metric in JOINT}
    paired = paired_differences(tables, best, values, seed)
    ranks, average, no_ranks = _ranks(methods, groups)
    if average is not None:
        methods = [row.model_copy(update={"average_rank": float(r)}) for row, r in zip(methods, average, strict=True)]
    return ComparisonSection(
        metrics=list(METRICS),
        higher_is_better={name: name not in LOWER_IS_BETTER for name in METRICS},
        methods=methods,
        differences=paired.differences,
        unpaired=paired.refusal,
        ranks=ranks,
        no_ranks=no_ranks,
        notes=[*_left_out(parts, groups), *paired.notes, *_approximate(tables)],
    )


def _parts(table: ScoreTable) -> dict[str, ScoreTable]:
    """The whole table and its groups; a group that is called like the whole gets another name."""
    groups = {(f"group {name}" if name == WHOLE else name): part for name, part in group_tables(table).items()}
    return {WHOLE: table, **groups}


def _values(table: ScoreTable) -> dict[str, float | None]:
    return {metric: _defined(measure, table) for metric, measure in METRICS.items()}


def _defined(measure: Metric, table: ScoreTable) -> float | None:
    try:
        return float(measure(table))
    except Undefined:
        return None


def _best(methods: Sequence[MethodRow], metric: str) -> int | None:
    """The position of the best table; None where one of them has no value."""
    values = [row.values[WHOLE][metric] for row in methods]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return int(np.argmin(known) if metric in LOWER_IS_BETTER else np.argmax(known))


def _ranks(
    methods: Sequence[MethodRow], groups: Sequence[str]
) -> tuple[RankTest | None, Sequence[float] | None, str | None]:
    blocks = _blocks(methods, [name for name in groups if name != WHOLE] or [WHOLE])
    if len(methods) < 3 or len(blocks) < 2:
        there = f"there are {len(methods)} and {len(blocks)}"
        return None, None, f"A rank test needs 3 tables and 2 blocks (group × metric); {there}."
    found = rank_methods([row.name for row in methods], np.array(list(blocks.values())))
    test = RankTest(
        blocks=list(blocks),
        friedman=found.friedman,
        friedman_p=found.friedman_p,
        iman_davenport=None if np.isinf(found.iman_davenport) else found.iman_davenport,
        iman_davenport_p=found.iman_davenport_p,
        alpha=found.alpha,
        significant=found.significant,
        adjusted_p=found.adjusted_p.tolist(),
        cliques=[[found.methods[i] for i in clique] for clique in found.cliques],
    )
    return test, found.average_rank.tolist(), None


def _blocks(methods: Sequence[MethodRow], groups: Sequence[str]) -> Mapping[str, list[float]]:
    """Values by block, turned so that higher is better; a block in which a table has no value is left out."""
    blocks = {}
    for group in groups:
        for metric in JOINT:
            values = [row.values[group][metric] for row in methods]
            known = [value for value in values if value is not None]
            if len(known) == len(values):
                sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
                blocks[f"{group} · {metric}"] = [sign * value for value in known]
    return blocks


def _left_out(parts: Sequence[Mapping[str, ScoreTable]], groups: Sequence[str]) -> list[str]:
    absent = sorted({name for part in parts for name in part} - set(groups))
    if not absent:
        return []
    shown = ", ".join(absent[:5]) + (", …" if len(absent) > 5 else "")
    return [f"Only groups that every table has are compared; left out: {shown}."]


def _approximate(tables: Sequence[NamedTable]) -> list[str]:
    if max(len(named.table) for named in tables) <= EXACT_ROWS:
        return []
    return [f"DS-AURC of more than {EXACT_ROWS:,} rows is read from a grid of {GRID:,} values of τ_ood."]
