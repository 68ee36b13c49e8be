"""The metrics of a table within seconds, whatever its size.

Small tables are evaluated exactly and resampled as they are. Beyond that, two things are given up and said on the page:
DS-AURC is read from a grid of tau_ood, and the intervals come from resamples of fewer rows. The spread of an estimate
shrinks with the root of the number of rows, so what m rows show is narrowed by √(m/n) for n rows (Bickel, Götze & van
Zwet 1997).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from calibration.metrics import evaluate, group_tables
from calibration.metrics.double_aurc import GRID
from calibration.report.sampling import sample_of_groups
from calibration.table import ScoreTable

RESAMPLED_ROWS = 10_000
EXACT_ROWS = 40_000

Document = dict[str, Any]


def measure(table: ScoreTable, resamples: int, seed: int = 0, advance: Callable[[int], None] | None = None) -> Document:
    """The document of `calibration.metrics.evaluate`, with intervals from `resamples` resamples."""
    if len(table) <= RESAMPLED_ROWS:
        return evaluate(table, bootstrap=resamples, seed=seed, advance=advance)
    document = evaluate(table, grid=GRID if len(table) > EXACT_ROWS else None)
    if not resamples:
        return document
    part = table.take(sample_of_groups(table, RESAMPLED_ROWS, seed))
    spread = evaluate(part, bootstrap=resamples, seed=seed, advance=advance)
    narrowed = _narrowed(document, spread)
    groups = {
        name: inside | {"intervals": _narrowed(inside, spread["groups"][name])}
        for name, inside in document["groups"].items()
    }
    note = (
        f"Intervals: {resamples} resamples of {len(part):,} of the {len(table):,} rows, narrowed by the root of the"
        " ratio."
    )
    return document | {
        "intervals": narrowed,
        "groups": groups,
        "bootstrap": spread["bootstrap"],
        "notes": [*document["notes"], note],
    }


def affordable_resamples(table: ScoreTable) -> int:
    """Resamples that take a few seconds: 200 for small tables, fewer for large ones or those with many groups."""
    rows = min(len(table), RESAMPLED_ROWS)
    seconds = (1 + len(group_tables(table))) * (0.005 + 1.2e-6 * rows)
    return max(25, min(200, round(4.0 / seconds)))


def _narrowed(whole: Mapping[str, Any], part: Mapping[str, Any]) -> Document:
    """The intervals of a part, around the values of the whole and as narrow as its rows make them."""
    rows = [document["n_id"] + document["n_ood"] for document in (part, whole)]
    factor = math.sqrt(rows[0] / rows[1])
    return _placed(part["intervals"], part, whole, factor)


def _placed(intervals: Mapping[str, Any], part: Mapping[str, Any], whole: Mapping[str, Any], factor: float) -> Document:
    placed: Document = {}
    for key, inside in intervals.items():
        if not isinstance(whole.get(key), float):
            if isinstance(whole.get(key), Mapping):
                placed[key] = _placed(inside, part[key], whole[key], factor)
            continue
        placed[key] = {end: whole[key] + factor * (inside[end] - part[key]) for end in ("low", "high")}
    return placed
