"""Exact DS-F1 and DS-AURC against the published grid search, and the rest of the metrics at size.

    python benchmarks/metrics.py               # speed
    python benchmarks/metrics.py --intervals   # how often intervals hold the population's value; some minutes

One run, one machine: the reference is a plain numpy version of the search by Li et al. (1001 x 1001 thresholds,
100 coverage bins). Tables are half OOD; times are the best of a few after one call that loads compiled code.
"""

import gc
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calibration.metrics import RiskCoverage, double_risk_coverage, ds_aurc, ds_f1, failure, interval, ood, resamples
from calibration.metrics.aurc import area_of_generalised_risk, estimates, outcomes
from calibration.metrics.compiled import repeated
from calibration.metrics.curve import trapezoid
from calibration.table import ScoreTable


def make_table(n: int, seed: int = 0) -> ScoreTable:
    """Half ID with 80 % accuracy, half OOD; s_id is a probability, as the reference expects."""
    rng = np.random.default_rng(seed)
    is_id = np.arange(n) % 2 == 0
    correct = (rng.random(n) < 0.8) & is_id
    s_id = 1.0 / (1.0 + np.exp(-rng.normal(size=n) - 1.2 * correct))
    s_ood = rng.normal(size=n) + 1.5 * is_id
    return ScoreTable.from_columns(s_id=s_id, s_ood=s_ood, is_id=is_id, correct=correct)


def reference(table: ScoreTable, size: int = 1001, bins: int = 100) -> tuple[float, float]:
    """DS-F1 and DS-AURC on a uniform grid: every tau_ood in turn, one matrix product over all tau_id."""
    thresholds = np.linspace(0.0, 1.0, size)
    low, high = table.s_ood.min(), table.s_ood.max()
    normal = (table.s_ood - low) / (high - low)
    admitted = (table.s_id[:, None] >= thresholds).astype(np.float64)
    kinds = np.stack([table.correct, table.is_id, np.ones(len(table), bool)]).astype(np.float64)
    right, covered, accepted = (np.empty((size, size)) for _ in range(3))
    for row, tau in enumerate(thresholds):
        right[row], covered[row], accepted[row] = (kinds * (normal >= tau)) @ admitted
    f1 = 2.0 * right / (accepted + table.n_id)
    risk = 1.0 - np.divide(right, accepted, out=np.zeros_like(right), where=accepted > 0)
    coverage = covered / table.n_id
    edges = np.linspace(0.0, 1.0, bins + 1)
    best = np.full(bins, np.nan)
    for index in range(bins):
        inside = (coverage >= edges[index]) & (coverage < edges[index + 1])
        if inside.any():
            best[index] = risk[inside].min()
    for index in range(bins - 1, -1, -1):
        if np.isnan(best[index]):
            best[index] = best[index + 1] if index + 1 < bins else 1.0
    return float(f1.max()), float(np.trapezoid(best, (edges[1:] + edges[:-1]) / 2))


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Best wall time in seconds, and the result."""
    times, result = [], None
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - began)
    return min(times), result


def line(what: str, value: str, target: str = "") -> None:
    """One line of the report."""
    print(f"{what:<58} {value:>16}   {target}", flush=True)


def against_the_reference() -> None:
    """DS-F1 and DS-AURC at the reference's size."""
    n = 20_000
    table = make_table(n)
    ds_f1(table)
    seconds, (grid_f1, grid_aurc) = timed(lambda: reference(table), 1)
    ours, exact = timed(lambda: ds_f1(_fresh(table)), 20)
    line(f"grid search by numpy, n = {n:,}", f"{seconds:.2f} s", "reference: DS-F1 and DS-AURC in one")
    line(f"ds_f1, n = {n:,}", f"{ours * 1e3:.2f} ms", "")
    line("  ratio", f"{seconds / ours:,.0f} x", "> 1,000 x")
    line("  value, exact and grid", f"{exact.value:.6f} {grid_f1:.6f}", "never lower")
    line(
        "  published DS-AURC, here and in the reference", f"{ds_aurc(table, 'published'):.6f} {grid_aurc:.6f}", "equal"
    )
    table = make_table(2_000)
    moved = ScoreTable(**(table.columns() | {"s_ood": np.exp(3.0 * table.s_ood)}))
    values = f"{reference(table)[0]:.6f} {reference(moved)[0]:.6f}"
    line("grid DS-F1 before and after exp(3 s_ood), n = 2,000", values, "moves")
    values = f"{ds_f1(table).value:.6f} {ds_f1(moved).value:.6f}"
    line("ds_f1 before and after exp(3 s_ood), n = 2,000", values, "stays")


def at_size() -> None:
    """What has to hold at sizes the grid search does not reach."""
    table = make_table(1_000_000)
    seconds, _ = timed(lambda: ds_f1(_fresh(table)), 3)
    line("ds_f1, n = 1,000,000", f"{seconds:.2f} s", "< 3 s")
    for n, target in ((20_000, "< 0.5 s"), (100_000, "< 15 s")):
        table = make_table(n)
        double_risk_coverage(table)
        seconds, curve = timed(partial(_curve, table), 3 if n < 50_000 else 1)
        line(f"ds_aurc, every pair, n = {n:,}", f"{seconds:.2f} s", f"{target}, exact: {curve.exact}")
        tracemalloc.start()
        double_risk_coverage(_fresh(table))
        line("  peak memory a row", f"{tracemalloc.get_traced_memory()[1] / n:.0f} bytes", "O(n)")
        tracemalloc.stop()
    table = make_table(10_000_000)
    seconds, _ = timed(lambda: _family(_fresh(table)), 1)
    line("AURC (4 estimators), AUGRC, AUROC, AP, FPR95, n = 10,000,000", f"{seconds:.2f} s", "< 10 s")


def _curve(table: ScoreTable) -> RiskCoverage:
    return double_risk_coverage(_fresh(table))


def _family(table: ScoreTable) -> None:
    sweep = outcomes(table, "s_id")
    estimates(sweep)
    area_of_generalised_risk(sweep)
    failure(table, "s_id")
    ood(table, "s_id")


def from_the_command_line() -> None:
    """`airlock evaluate` on 10,000 rows, from process start to exit."""
    program = [sys.executable, "-c", "from service.cli import main; main()", "evaluate"]
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("csv", "parquet"):
            path = make_table(10_000).write(Path(folder) / f"scores.{suffix}")
            call = [*program, str(path), "--json"]
            seconds, _ = timed(partial(subprocess.run, call, check=True, capture_output=True), 5)
            line(f"airlock evaluate, 10,000 rows, {suffix}", f"{seconds:.2f} s", "< 2 s, nothing compiled")


def coverage_of_intervals(n: int, tables: int = 120, draws: int = 200) -> None:
    """How often 95 % intervals from n rows hold the value of a population of 400,000, plain and corrected for bias."""
    metrics = {"DS-F1": lambda table: ds_f1(table).value, "DS-AURC": _thinned_aurc, "OOD AUROC": _ood_auroc}
    population = make_table(400_000, seed=1_000_000)
    for name, metric in metrics.items():
        truth = metric(population)
        plain = corrected = 0
        for seed in range(tables):
            table = make_table(n, seed)
            with repeated(10**9):  # compiled from the first draw on
                found = interval(table, metric, draws, seed=seed)
                values = [metric(table.reweighted(weight)) for weight in resamples(table, draws, seed)]
            low, high = np.quantile(values, [0.025, 0.975])
            plain += low <= truth <= high
            corrected += found.low <= truth <= found.high
        line(f"{name}, n = {n:,}: plain and corrected", f"{plain / tables:.0%} {corrected / tables:.0%}", "95 %")


def _thinned_aurc(table: ScoreTable) -> float:
    return trapezoid(double_risk_coverage(table, grid=128))


def _ood_auroc(table: ScoreTable) -> float:
    return ood(table).auroc


def _fresh(table: ScoreTable) -> ScoreTable:
    """The same rows without anything remembered from an earlier call."""
    return ScoreTable(**table.columns())


if __name__ == "__main__":
    if "--intervals" in sys.argv[1:]:
        for size in (300, 2_000):
            coverage_of_intervals(size)
    else:
        against_the_reference()
        at_size()
        from_the_command_line()
