"""Bootstrap intervals: stratified, seeded, paired where two things are compared.

A resample is a table with the same rows and other weights, so every metric that takes weights can be resampled and
no row is sorted twice. Intervals are corrected for bias: a best value over thresholds is optimistic, and more so on a
resample, which plain percentiles would take for spread in the wrong direction.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from calibration.errors import TableError
from calibration.metrics.compiled import repeated
from calibration.metrics.undefined import Undefined
from calibration.table import ScoreTable

_NORMAL = NormalDist()

Statistic = Callable[[ScoreTable], float]
Statistics = Callable[[ScoreTable], Mapping[str, float]]


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, from as many resamples as defined it."""

    estimate: float
    low: float
    high: float
    level: float
    replicates: int

    def around(self, estimate: float) -> "Interval":
        """The same spread around a better estimate of the same quantity."""
        shift = estimate - self.estimate
        return replace(self, estimate=estimate, low=self.low + shift, high=self.high + shift)


@dataclass(frozen=True)
class Comparison:
    """The difference of a statistic between two tables of the same samples, first minus second."""

    difference: Interval
    share_above: float
    """Share of resamples in which the first is larger; ties count half."""


def resamples(table: ScoreTable, n: int, seed: int = 0) -> Iterator[np.ndarray]:
    """`n` weight columns that stand for draws with replacement, within the ID rows and within each OOD group."""
    rng = np.random.default_rng(seed)
    strata = _strata(table)
    for _ in range(n):
        counts = np.zeros(len(table))
        for rows in strata:
            counts[rows] = np.bincount(rng.integers(0, len(rows), len(rows)), minlength=len(rows))
        yield counts * table.weights


def bootstrap(
    table: ScoreTable,
    statistics: Statistics,
    n: int = 1000,
    *,
    seed: int = 0,
    level: float = 0.95,
    advance: Callable[[int], None] | None = None,
) -> dict[str, Interval]:
    """Intervals of several statistics from the same resamples; `advance(1)` is called after each."""
    _check(n, level)
    estimates = statistics(table)
    draws: dict[str, list[float]] = {name: [] for name in estimates}
    with repeated(n):
        for weight in resamples(table, n, seed):
            for name, value in _defined(statistics, table.reweighted(weight)).items():
                if name in draws and np.isfinite(value):
                    draws[name].append(value)
            if advance is not None:
                advance(1)
    return {name: _interval(estimate, draws[name], level) for name, estimate in estimates.items() if draws[name]}


def interval(table: ScoreTable, statistic: Statistic, n: int = 1000, *, seed: int = 0, level: float = 0.95) -> Interval:
    """The interval of one statistic."""
    found = bootstrap(table, lambda resample: {"": statistic(resample)}, n, seed=seed, level=level)
    if not found:
        raise Undefined("no resample of the table defines the statistic")
    return found[""]


def compare(
    first: ScoreTable, second: ScoreTable, statistic: Statistic, n: int = 1000, *, seed: int = 0, level: float = 0.95
) -> Comparison:
    """The paired difference of a statistic: both tables hold the same samples in the same order, drawn together."""
    _check(n, level)
    if not np.array_equal(first.is_id, second.is_id):
        raise TableError("The two tables do not hold the same samples in the same order: their is_id columns differ.")
    if first.id is not None and second.id is not None and not np.array_equal(first.id, second.id):
        row = int(np.argmax(first.id != second.id))
        raise TableError(
            f"The two tables differ in the id of row {row + 1}: {str(first.id[row])!r} and {str(second.id[row])!r}."
        )
    draws: list[float] = []
    with repeated(2 * n):
        for weight in resamples(first, n, seed):
            try:
                pair = (statistic(table.reweighted(weight)) for table in (first, second))
                draws.append(next(pair) - next(pair))
            except Undefined:
                continue
    if not draws:
        raise Undefined("no resample of the tables defines the statistic")
    differences = np.array(draws)
    above = float(np.mean((differences > 0.0) + 0.5 * (differences == 0.0)))
    return Comparison(_interval(statistic(first) - statistic(second), draws, level), above)


def _strata(table: ScoreTable) -> list[np.ndarray]:
    ood = np.flatnonzero(~table.is_id)
    parts = [np.flatnonzero(table.is_id)]
    if table.group is None:
        parts.append(ood)
    else:
        parts += [ood[table.group[ood] == name] for name in np.unique(table.group[ood])]
    return [rows for rows in parts if len(rows)]


def _defined(statistics: Statistics, table: ScoreTable) -> Mapping[str, float]:
    try:
        return statistics(table)
    except Undefined:
        return {}


def _interval(estimate: float, draws: list[float], level: float) -> Interval:
    """Bias-corrected percentiles (Efron 1981): they move with the share of draws below the estimate."""
    values = np.array(draws)
    edge = 0.5 / len(values)
    below = np.clip(np.mean((values < estimate) + 0.5 * (values == estimate)), edge, 1.0 - edge)
    shift, reach = 2.0 * _NORMAL.inv_cdf(float(below)), _NORMAL.inv_cdf((1.0 + level) / 2.0)
    low, high = np.quantile(values, [_NORMAL.cdf(shift - reach), _NORMAL.cdf(shift + reach)])
    return Interval(float(estimate), float(low), float(high), level, len(values))


def _check(n: int, level: float) -> None:
    if n < 1:
        raise TableError(f"The number of resamples must be at least 1, not {n!r}.")
    if not 0.0 < level < 1.0:
        raise TableError(f"The level of an interval must lie between 0 and 1, not {level!r}.")
