"""Do the promises hold? Simulated calibrations whose true risk is known in closed form.

Every trial draws a calibration table (30 % OOD, rounded scores with many ties) from a population in which the scores
are Gaussian given the kind of row, so that the true selective risk of any pair of thresholds is a formula and not
another sample. `sgr` and `certified` see the same data. A violation is a policy whose true risk is above r*.

    python benchmarks/guarantees.py [--trials 2000] [--samples 3000] [--jobs 2]
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import ndtr
from scipy.stats import binom

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from calibration.certify import largest_prevalence, prevalence_budget
from calibration.metrics import ds_f1
from calibration.resample import accepted_by
from calibration.select.pareto import Front, certify
from calibration.select.sgr import sgr
from calibration.table import ScoreTable

RISKS = (0.01, 0.05, 0.10)
DELTAS = (0.01, 0.05, 0.10)
METHODS = ("sgr", "certified")


@dataclass(frozen=True)
class Population:
    """Kinds of rows (correct ID, misclassified ID, OOD) with unit-variance Gaussian scores, rounded to `step`."""

    shares: tuple[float, float, float]
    mean_id: tuple[float, float, float]
    mean_ood: tuple[float, float, float]
    step: float = 0.1

    def draw(self, n: int, rng: np.random.Generator) -> ScoreTable:
        """A table of n independent rows."""
        kind = rng.choice(3, size=n, p=self.shares)
        s_id, s_ood = (np.array(mean)[kind] + rng.standard_normal(n) for mean in (self.mean_id, self.mean_ood))
        if self.step:
            s_id, s_ood = (np.rint(score / self.step) * self.step for score in (s_id, s_ood))
        return ScoreTable(s_id, s_ood, kind < 2, kind == 0)

    def accepted(self, tau_id: float, tau_ood: float) -> np.ndarray:
        """The share of each kind that passes both doors; rounding moves a threshold down by half a step."""
        half = self.step / 2
        passes: np.ndarray = ndtr(np.array(self.mean_id) - tau_id + half)
        passes *= ndtr(np.array(self.mean_ood) - tau_ood + half)
        return passes

    def risk(self, tau_id: float, tau_ood: float) -> float:
        """The true selective risk in the population's mix."""
        right, *wrong = np.array(self.shares) * self.accepted(tau_id, tau_ood)
        return float(sum(wrong) / (right + sum(wrong)))

    def coverage(self, tau_id: float, tau_ood: float) -> float:
        """The true acceptance of ID."""
        of_id = np.array(self.shares[:2])
        return float(of_id @ self.accepted(tau_id, tau_ood)[:2] / of_id.sum())

    def budget(self, tau_id: float, tau_ood: float, risk: float) -> float:
        """The true largest OOD prevalence at which the risk stays within the limit; negative if there is none."""
        right, wrong, ood = np.array([*self.shares[:2], 1.0]) * self.accepted(tau_id, tau_ood)
        share = 1 - self.shares[2]
        found = largest_prevalence(risk, (right + wrong) / share, wrong / (right + wrong), ood)
        return -1.0 if found is None else found


GOOD = Population((0.66, 0.04, 0.30), mean_id=(3.2, 0.2, 0.4), mean_ood=(2.8, 2.2, -0.6))
MEDIOCRE = Population((0.63, 0.07, 0.30), mean_id=(2.6, 0.4, 0.6), mean_ood=(2.4, 1.9, -0.2))


@dataclass
class Cell:
    """Counts of one method at one (risk, delta)."""

    trials: int = 0
    refused: int = 0
    violations: int = 0
    budget_violations: int = 0
    coverage: float = 0.0

    def add(self, other: "Cell") -> None:
        """Merge the counts of another batch of trials."""
        self.trials += other.trials
        self.refused += other.refused
        self.violations += other.violations
        self.budget_violations += other.budget_violations
        self.coverage += other.coverage

    def doubt(self, delta: float, violations: int) -> float:
        """P(at least this many violations | rate = delta): small would say that the promise is broken."""
        return float(binom.sf(violations - 1, self.trials, delta))


Cells = dict[tuple[str, float, float], Cell]
Choice = Callable[[float, float], tuple[float, float] | None]


def simulate(population: Population, samples: int, trials: int, seed: int) -> Cells:
    """Run both methods at all levels on the same draws: half to choose, half to certify, as much again to judge."""
    cells: Cells = {key: Cell() for key in product(METHODS, RISKS, DELTAS)}
    rng = np.random.default_rng(seed)
    for _ in range(trials):
        selection, certification, evaluation = (population.draw(samples // 2, rng) for _ in range(3))
        found = {"sgr": _sgr(selection, certification), "certified": _certified(selection, certification)}
        for (method, risk, delta), cell in cells.items():
            _judge(population, evaluation, found[method](risk, delta), risk, delta, cell)
    return cells


def _sgr(selection: ScoreTable, certification: ScoreTable) -> Choice:
    """The `sgr` selector, with what does not depend on the levels done once."""
    tau_ood = ds_f1(selection).tau_ood
    passing = certification.take(certification.s_ood >= tau_ood)

    def choose(risk: float, delta: float) -> tuple[float, float] | None:
        found = sgr(passing.s_id, ~passing.correct, risk, delta)
        return None if found is None else (found.tau, tau_ood)

    return choose


def _certified(selection: ScoreTable, certification: ScoreTable) -> Choice:
    """The `certified` selector, likewise."""
    front = Front.of(selection)
    tested = front.on(certification)

    def choose(risk: float, delta: float) -> tuple[float, float] | None:
        found = certify(front, tested, risk, delta)
        return None if found is None else (found.tau_id, found.tau_ood)

    return choose


def _judge(
    population: Population,
    evaluation: ScoreTable,
    pair: tuple[float, float] | None,
    risk: float,
    delta: float,
    cell: Cell,
) -> None:
    """Count what the population says of a chosen pair."""
    cell.trials += 1
    if pair is None:
        cell.refused += 1
        return
    cell.coverage += population.coverage(*pair)
    cell.violations += population.risk(*pair) > risk
    budget = prevalence_budget(evaluation, accepted_by(evaluation, *pair), risk, delta)
    cell.budget_violations += budget.pi_star is not None and budget.pi_star > population.budget(*pair, risk)


def _batches(trials: int, size: int) -> Iterator[tuple[int, int]]:
    """Seeds and sizes of batches, the same however many processes share them."""
    for seed, start in enumerate(range(0, trials, size)):
        yield seed, min(size, trials - start)


def run(population: Population, samples: int, trials: int, jobs: int) -> Cells:
    """Spread batches of trials over processes and add them up."""
    total: Cells = {key: Cell() for key in product(METHODS, RISKS, DELTAS)}
    with ProcessPoolExecutor(jobs) as pool:
        batches = [pool.submit(simulate, population, samples, size, seed) for seed, size in _batches(trials, 100)]
        for batch in batches:
            for key, cell in batch.result().items():
                total[key].add(cell)
    return total


def report(name: str, cells: Cells) -> bool:
    """Print one line a cell; False when a promise is broken beyond chance or `certified` covers less than `sgr`."""
    print(f"\n{name}")
    print(f"{'r*':>5} {'δ':>5} | {'violations sgr':>14} {'certified':>10} | {'π* exceeded':>11} |", end="")
    print(f" {'ID coverage sgr':>15} {'certified':>10} {'ratio':>6} | {'refused sgr':>11} {'certified':>10}")
    good = True
    for risk, delta in product(RISKS, DELTAS):
        sgr, certified = (cells[method, risk, delta] for method in METHODS)
        n = certified.trials
        over = sgr.budget_violations + certified.budget_violations
        doubts = [cell.doubt(delta, cell.violations) for cell in (sgr, certified)]
        doubts += [cell.doubt(delta, cell.budget_violations) for cell in (sgr, certified)]
        held = min(doubts) > 0.001 and certified.coverage >= sgr.coverage
        good = good and held
        ratio = f"{certified.coverage / sgr.coverage:6.2f}" if sgr.coverage else "     –"
        print(
            f"{risk:5.0%} {delta:5.0%} | {sgr.violations / n:14.2%} {certified.violations / n:10.2%} |"
            f" {over / (2 * n):11.2%} | {sgr.coverage / n:15.3f} {certified.coverage / n:10.3f} {ratio} |"
            f" {sgr.refused / n:11.1%} {certified.refused / n:10.1%}{'' if held else '   <- BROKEN'}"
        )
    return good


def main() -> int:
    """Run the simulation; exit code 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--samples", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    start = time.perf_counter()
    good = True
    for name, population in (
        ("good scores, 30 % OOD, ties (rounded to 0.1)", GOOD),
        ("good scores, 30 % OOD, heavy ties (rounded to 0.5)", replace(GOOD, step=0.5)),
        ("mediocre scores, 30 % OOD, ties (rounded to 0.1)", MEDIOCRE),
    ):
        good &= report(name, run(population, arguments.samples, arguments.trials, arguments.jobs))
    print(f"\n{arguments.trials:,} trials a cell, {arguments.samples:,} samples a trial, ", end="")
    print(f"{time.perf_counter() - start:.0f} s. Held: {'all' if good else 'NOT ALL'}.")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
