"""Score tables drawn by hypothesis, and metrics worked out from their definitions in exact fractions."""

import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from calibration.table import ScoreTable

Row = tuple[float, float, bool, bool, Fraction]


@st.composite
def _tables(draw: st.DrawFn, *, weights: str = "any", odd: bool = True, max_size: int = 9) -> ScoreTable:
    """Small tables with many ties; `weights` is none, whole or any, `odd` admits NaN and infinite scores."""
    n = draw(st.integers(0, max_size))
    plain = st.sampled_from([-1.5, 0.0, 0.125, 0.5, 0.875, 1.0, 2.0])
    score = st.one_of(plain, st.sampled_from([math.nan, math.inf, -math.inf])) if odd else plain
    weight = {
        "none": st.none(),
        "whole": st.lists(st.integers(0, 4), min_size=n, max_size=n),
        "any": st.one_of(
            st.none(),
            st.lists(st.integers(0, 4), min_size=n, max_size=n),
            st.lists(st.sampled_from([0.0, 1e-9, 0.25, 0.7, 1.0, 3.0, 1e9]), min_size=n, max_size=n),
        ),
    }[weights]
    return ScoreTable.from_columns(
        s_id=np.array(draw(st.lists(score, min_size=n, max_size=n)), dtype=float),
        s_ood=np.array(draw(st.lists(score, min_size=n, max_size=n)), dtype=float),
        is_id=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool),
        correct=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool),
        weight=draw(weight),
    )


def _rows(table: ScoreTable) -> list[Row]:
    columns = (table.s_id, table.s_ood, table.is_id, table.correct, table.weights)
    return [(float(a), float(b), bool(c), bool(d), Fraction(float(w))) for a, b, c, d, w in zip(*columns, strict=True)]


def _total(rows: Iterable[Row]) -> Fraction:
    return sum((row[4] for row in rows), Fraction(0))


def _accepted(rows: list[Row], tau_id: float, tau_ood: float) -> list[Row]:
    return [
        row
        for row in rows
        if math.isfinite(row[0]) and math.isfinite(row[1]) and row[0] >= tau_id and row[1] >= tau_ood
    ]


def _pairs(rows: list[Row], *, gates: str = "both") -> Iterator[tuple[float, float, list[Row]]]:
    """Every distinct pair of thresholds, an open door included, with what it accepts."""
    taus_id = sorted({row[0] for row in rows if math.isfinite(row[0])} | {-math.inf})
    taus_ood = sorted({row[1] for row in rows if math.isfinite(row[1])} | {-math.inf})
    for tau_id in taus_id if gates in ("both", "s_id") else [-math.inf]:
        for tau_ood in taus_ood if gates in ("both", "s_ood") else [-math.inf]:
            yield tau_id, tau_ood, _accepted(rows, tau_id, tau_ood)


def _f1(rows: list[Row], accepted: list[Row]) -> Fraction:
    n_id = _total(row for row in rows if row[2])
    right = _total(row for row in accepted if row[3])
    return 2 * right / (_total(accepted) + n_id)


def _best_f1(table: ScoreTable, gates: str = "both") -> Fraction:
    rows = _rows(table)
    return max(_f1(rows, accepted) for _, _, accepted in _pairs(rows, gates=gates))


def _smallest_risks(table: ScoreTable, gates: str = "both") -> list[tuple[Fraction, Fraction]]:
    """Every attainable coverage of ID with its smallest risk."""
    rows = _rows(table)
    n_id = _total(row for row in rows if row[2])
    best: dict[Fraction, Fraction] = {}
    for _, _, accepted in _pairs(rows, gates=gates):
        covered = _total(row for row in accepted if row[2])
        if covered > 0:
            risk = _total(row for row in accepted if not row[3]) / _total(accepted)
            best[covered / n_id] = min(risk, best.get(covered / n_id, risk))
    return sorted(best.items())


def _trapezoid(points: list[tuple[Fraction, Fraction]]) -> Fraction:
    if not points:
        return Fraction(1)
    area = points[0][0] * points[0][1] + (1 - points[-1][0])
    for (u, r), (v, s) in itertools.pairwise(points):
        area += (v - u) * (r + s) / 2
    return area


def _envelope(points: list[tuple[Fraction, Fraction]]) -> Fraction:
    if not points:
        return Fraction(1)
    area, before = 1 - points[-1][0], Fraction(0)
    for index, (u, _) in enumerate(points):
        area += (u - before) * min(risk for _, risk in points[index:])
        before = u
    return area


def _repeated(table: ScoreTable) -> ScoreTable:
    """Whole-number weights written out as repeated rows."""
    rows = np.repeat(np.arange(len(table)), table.weights.astype(int))
    columns = {name: column[rows] for name, column in table.columns().items() if name != "weight"}
    return ScoreTable(**columns)


def _close(found: Any, expected: Any, tolerance: float = 1e-11) -> bool:
    """Equal documents up to rounding."""
    if isinstance(expected, dict):
        return set(found) == set(expected) and all(_close(found[key], expected[key], tolerance) for key in expected)
    if isinstance(expected, float) and isinstance(found, float):
        return math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(found == expected)


@pytest.fixture(scope="session")
def oracle() -> SimpleNamespace:
    """Metrics from their definitions, in fractions, over all pairs of thresholds."""
    return SimpleNamespace(
        rows=_rows,
        pairs=_pairs,
        f1=_f1,
        accepted=_accepted,
        best_f1=_best_f1,
        smallest_risks=_smallest_risks,
        trapezoid=_trapezoid,
        envelope=_envelope,
        repeated=_repeated,
        close=_close,
    )


@pytest.fixture(scope="session")
def tables() -> Any:
    """The strategy of small tables; call it with options."""
    return _tables


@pytest.fixture(scope="session")
def mixed() -> Any:
    """A function that makes a table of any size, half OOD, with informative scores."""

    def make(n: int, seed: int = 0, *, decimals: int | None = None, groups: bool = False) -> ScoreTable:
        rng = np.random.default_rng(seed)
        is_id = np.arange(n) % 2 == 0
        correct = (rng.random(n) < 0.8) & is_id
        s_id = 1.0 / (1.0 + np.exp(-rng.normal(size=n) - 1.2 * correct))
        s_ood = rng.normal(size=n) + 1.5 * is_id
        if decimals is not None:
            s_id, s_ood = np.round(s_id, decimals), np.round(s_ood, decimals)
        names = np.where(is_id, "", np.array(["near/a", "far/b", "far/c"])[np.arange(n) % 3]) if groups else None
        return ScoreTable.from_columns(s_id=s_id, s_ood=s_ood, is_id=is_id, correct=correct, group=names)

    return make
