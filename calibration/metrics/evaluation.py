"""Every metric of a score table in one document."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from calibration.metrics.bootstrap import Interval
from calibration.metrics.bootstrap import bootstrap as bootstrapped
from calibration.metrics.coverage import common_unit
from calibration.metrics.double_aurc import GRID
from calibration.metrics.groups import average_names, averaged, group_tables
from calibration.metrics.sections import SECTIONS, Section, Subject
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable

Document = dict[str, Any]

BOOTSTRAP_GRID = 256
"""Values of tau_ood tried in a resample for DS-AURC; the interval is then put around the exact value."""


def evaluate(
    table: ScoreTable,
    *,
    prevalence: float | None = None,
    bootstrap: int = 0,
    seed: int = 0,
    level: float = 0.95,
    grid: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Document:
    """All metrics of a table, of each of its groups, and averages over groups; unscaled, None where undefined.

    `prevalence` weighs the rows so that OOD has that share, here and in each group. `bootstrap` is the number of
    resamples behind the intervals; `advance(1)` is called after each resample. `grid` reads DS-AURC from that many
    values of tau_ood, where every one of them would take too long.
    """

    def measured(part: ScoreTable, share: float | None) -> Document:
        weighted = part if share is None else part.with_prevalence(share)
        return _with_intervals(Subject(weighted, grid), bootstrap, seed, level, advance)

    document = measured(table, prevalence)
    groups = {
        name: measured(part, prevalence if part.n_ood else None)  # ID rows alone have no prevalence to state
        for name, part in group_tables(table).items()
    }
    last = {key: document.pop(key) for key in ("intervals", "undefined", "notes")}
    return document | {
        "prevalence": prevalence,
        "groups": groups,
        "averages": {
            name: averaged([groups[member] for member in members]) for name, members in average_names(groups).items()
        },
        "bootstrap": {"replicates": bootstrap, "seed": seed, "level": level} if bootstrap else None,
        **last,
    }


def _with_intervals(
    subject: Subject, n: int, seed: int, level: float, advance: Callable[[int], None] | None
) -> Document:
    table = subject.table
    document, undefined = _measured(subject, SECTIONS)
    counts = {"n_id": table.n_id, "n_ood": table.n_ood, "n_not_finite": table.n_not_finite}
    document = counts | document
    remarks = {"undefined": undefined, "notes": _notes(subject)}
    if not n or not len(table):
        return document | {"intervals": {}} | remarks
    resampled = tuple(section for section in SECTIONS if section.resampled)

    def statistics(resample: ScoreTable) -> Mapping[str, float]:
        return dict(_leaves(_measured(Subject(resample, BOOTSTRAP_GRID), resampled)[0]))

    exact = dict(_leaves(document))
    found = bootstrapped(table, statistics, n, seed=seed, level=level, advance=advance)
    placed = {path: interval.around(exact[path]) for path, interval in found.items() if path in exact}
    return document | {"intervals": _nested(placed)} | remarks


def _measured(subject: Subject, sections: Iterable[Section]) -> tuple[Document, dict[str, str]]:
    """The document's metrics, and for each null the reason."""
    document: Document = {}
    undefined: dict[str, str] = {}
    for section in sections:
        place = document
        for step in section.path:
            place = place.setdefault(step, {})
        try:
            values = section.values(subject)
        except Undefined as reason:
            place.update(dict.fromkeys(section.keys))
            undefined |= {".".join((*section.path, key)): str(reason) for key in section.keys}
            continue
        for key in section.keys:
            finite = math.isfinite(values[key])
            place[key] = float(values[key]) if finite else None
            if not finite:
                undefined[".".join((*section.path, key))] = _why_not_finite(key)
    return document, undefined


def _why_not_finite(key: str) -> str:
    if key.startswith("tau"):
        return "no threshold accepts a correct row"
    return "no threshold reaches this coverage"


def _leaves(document: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, float]]:
    """Metrics by dotted path; counts and thresholds have no interval."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{path}{key}.")
        elif isinstance(value, float) and not key.startswith("tau"):
            yield path + key, value


def _nested(intervals: Mapping[str, Interval]) -> Document:
    document: Document = {}
    for path, interval in intervals.items():
        *steps, key = path.split(".")
        place = document
        for step in steps:
            place = place.setdefault(step, {})
        place[key] = {"low": interval.low, "high": interval.high}
    return document


def _notes(subject: Subject) -> list[str]:
    """What a reader should know about how the values came about."""
    table = subject.table
    notes = []
    if table.n_not_finite:
        notes.append(f"Never accepted, because a score is not finite: {table.n_not_finite:,} of {len(table):,} rows.")
    total, counted = float(table.weights.sum()), int(np.count_nonzero(table.weights))
    if total < counted / 2.0:
        notes.append(
            f"Weights count as repetitions, and add up to {total:.4g} for {counted:,} rows: aurc and eaurc by plugin,"
            " plugin_log and sele are those of as few rows. Give weights a mean of 1, or read curve."
        )
    id_weights = table.weights[table.is_id & table.finite & (table.weights > 0.0)]
    if len(id_weights) and not subject.double_curve.exact:
        notes.append(
            f"ds_aurc.trapezoid and ds_aurc.envelope are approximate: this table needs {GRID:,} quantiles in place of"
            " every tau_ood, or coverages rounded to a millionth."
        )
    if len(id_weights) and not common_unit(id_weights)[1]:
        notes.append(
            "ID weights have no common unit, so almost every pair has a coverage of its own and ds_aurc.trapezoid"
            " hardly takes a minimum: read ds_aurc.envelope."
        )
    inside = table.s_id[table.finite]
    if len(inside) and (inside.min() < 0.0 or inside.max() > 1.0):
        notes.append(
            "ds_aurc.published compares s_id with thresholds from 0 to 1, and here s_id is no probability:"
            " it is not comparable with published values."
        )
    return notes
