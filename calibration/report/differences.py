"""Is the best table really better? Differences of the joint metrics on the same samples, drawn together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibration.metrics import Interval, bootstrap, ds_f1
from calibration.metrics.curve import envelope
from calibration.metrics.double_aurc import double_risk_coverage
from calibration.metrics.evaluation import BOOTSTRAP_GRID
from calibration.report.document import PairedDifference
from calibration.report.measures import RESAMPLED_ROWS
from calibration.report.sampling import sample_of_groups
from calibration.report.tables import NamedTable
from calibration.table import ScoreTable

_RESAMPLED = {
    "ds_f1": lambda table: ds_f1(table).value,
    "ds_aurc": lambda table: envelope(double_risk_coverage(table, grid=BOOTSTRAP_GRID)),
}


@dataclass(frozen=True)
class Paired:
    """The differences to the best table, or why there are none."""

    differences: list[PairedDifference]
    refusal: str | None = None
    notes: tuple[str, ...] = ()


def paired_differences(
    tables: Sequence[NamedTable],
    best: Mapping[str, int | None],
    values: Mapping[str, Sequence[float | None]],
    seed: int,
) -> Paired:
    """For each metric, every table minus the best one with a 95 % interval; every resample serves all tables."""
    refusal = _unlike(tables)
    metrics = {metric: place for metric, place in best.items() if place is not None}
    if refusal or not metrics:
        return Paired([], refusal or "The joint metrics are not defined for every table.")
    rows = sample_of_groups(tables[0].table, RESAMPLED_ROWS, seed)
    parts = [named.table.take(rows) for named in tables]
    replicates = _affordable(len(tables), len(rows))
    found = _resampled(parts, metrics, replicates, seed)
    factor = math.sqrt(len(rows) / len(tables[0].table))
    differences = []
    for (metric, i), interval in found.items():
        mine, theirs = values[metric][i], values[metric][metrics[metric]]
        assert mine is not None
        assert theirs is not None
        gap = mine - theirs
        differences.append(
            PairedDifference(
                method=tables[i].name,
                against=tables[metrics[metric]].name,
                metric=metric,
                difference=gap,
                low=gap + factor * (interval.low - interval.estimate),
                high=gap + factor * (interval.high - interval.estimate),
            )
        )
    return Paired(differences, notes=_notes(replicates, len(rows), len(tables[0].table)))


def _unlike(tables: Sequence[NamedTable]) -> str | None:
    """Why the rows of the tables cannot be drawn together."""
    first = tables[0]
    for other in tables[1:]:
        start = f"{other.name} and {first.name} cannot be paired:"
        if len(other.table) != len(first.table):
            return f"{start} they have {len(other.table):,} and {len(first.table):,} rows."
        a, b = first.table, other.table
        if not np.array_equal(a.is_id, b.is_id) or not np.array_equal(a.weights, b.weights):
            return f"{start} they do not hold the same samples in the same order (is_id or weight differ)."
        if a.id is not None and b.id is not None and not np.array_equal(a.id, b.id):
            row = int(np.argmax(a.id != b.id))
            return f"{start} row {row + 1} is {str(b.id[row])!r} in one and {str(a.id[row])!r} in the other."
    return None


def _resampled(
    parts: Sequence[ScoreTable], best: Mapping[str, int], replicates: int, seed: int
) -> dict[tuple[str, int], Interval]:
    def statistics(resample: ScoreTable) -> dict[str, float]:
        drawn = [part.reweighted(resample.weights) for part in parts]
        gaps: dict[str, float] = {}
        for metric, place in best.items():
            values = [_RESAMPLED[metric](part) for part in drawn]
            gaps |= {f"{metric} {i}": value - values[place] for i, value in enumerate(values) if i != place}
        return gaps

    found = bootstrap(parts[0], statistics, replicates, seed=seed)
    return {(name.split()[0], int(name.split()[1])): interval for name, interval in found.items()}


def _affordable(tables: int, rows: int) -> int:
    """Resamples that take a few seconds."""
    seconds = tables * (0.002 + 1.2e-6 * rows)
    return max(50, min(200, round(5.0 / seconds)))


def _notes(replicates: int, rows: int, total: int) -> tuple[str, ...]:
    note = f"Differences: paired bootstrap, {replicates} resamples, 95 %"
    if rows < total:
        return (f"{note}, of {rows:,} of the {total:,} rows, narrowed by the root of the ratio.",)
    return (f"{note}.",)
