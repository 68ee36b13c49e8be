"""`certified`: Pareto testing of threshold pairs, a fixed sequence of exact tests without a union bound.

The selection split finds the Pareto front of pairs (largest coverage, fewest wrong accepted) and its own p-values order
it, most significant first. The certification split walks that order with exact binomial p-values, each at the full
delta, and stops at the first failure: every pair before it has risk ≤ r*, all at once with probability ≥ 1 − delta
(fixed-sequence testing). Selective risk is not monotone in the thresholds and nothing here assumes it.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibration.binomial import fewest_samples, p_value
from calibration.errors import SelectionRefused
from calibration.select.base import Parameters, Promise, Selection, Selector
from calibration.select.exact import (
    certificate,
    certification_part,
    exact_parts,
    out_of_reach,
    sampling_notes,
    scope_of,
)
from calibration.select.grid import AXIS_LIMIT, Grid
from calibration.splits import Splits
from calibration.table import ScoreTable

STARTS = 16  # thresholds a door in the sub-grid that the first test is taken from


class Counts(NamedTuple):
    """What several pairs accept: all rows, ID rows, and rows that are wrong (misclassified or OOD)."""

    accepted: NDArray[np.int64]
    of_id: NDArray[np.int64]
    wrong: NDArray[np.int64]

    @classmethod
    def over(cls, grid: Grid, table: ScoreTable) -> "Counts":
        """Every pair of the grid, flat."""
        accepted, of_id = grid.counts(table), grid.counts(table, table.is_id)
        wrong = accepted - grid.counts(table, table.correct)
        return cls(accepted.ravel(), of_id.ravel(), wrong.ravel())

    def at(self, cells: NDArray[np.int64]) -> "Counts":
        """Some of the pairs."""
        return Counts(self.accepted[cells], self.of_id[cells], self.wrong[cells])

    def p_values(self, risk: float) -> NDArray[np.float64]:
        """Exact p-values against "the true risk is above `risk`"."""
        return p_value(self.wrong, self.accepted, risk)


@dataclass(frozen=True)
class Front:
    """The Pareto front of the selection split, loosest pair first, and behind it the pairs a walk may start from."""

    grid: Grid
    cells: NDArray[np.int64]  # flat positions in the grid
    size: int  # how many of them are the front
    chosen: Counts  # on the selection split

    @classmethod
    def of(cls, selection: ScoreTable, limit: int = AXIS_LIMIT) -> "Front":
        """Find the front; only scores of ID rows are thresholds worth trying.

        Coverage counts ID rows: with all accepted rows instead, a pair could buy its place by letting OOD in.
        """
        grid = Grid.of(selection, selection.is_id, limit)
        if selection.n_ood == 0:  # nothing speaks for an OOD door: it stands at the lowest score seen
            grid = replace(grid, tau_ood=grid.tau_ood[-1:])
        counts = Counts.over(grid, selection)
        front = pareto_front(counts.of_id, counts.wrong)
        cells = np.concatenate([front, grid.coarse(STARTS)])
        return cls(grid, cells, len(front), counts.at(cells))

    def on(self, table: ScoreTable) -> Counts:
        """What the pairs of the front do on another table."""
        return Counts.over(self.grid, table).at(self.cells)

    def sequence(self, risk: float) -> NDArray[np.intp]:
        """The order of the tests: most significant first by the selection split's own p-values.

        The first is the best of a coarse sub-grid: the best of all pairs owes its place to luck more often, and failing
        at the start is losing everything. A pair that covers less than one already in the sequence is left out:
        certifying it could not enlarge the coverage, and failing on it would end the walk. All of this looks at the
        selection split only, which is what keeps the tests valid.
        """
        p = self.chosen.p_values(risk)
        start = self.size + np.argsort(p[self.size :], kind="stable")[:1]
        order = np.concatenate([start, np.argsort(p[: self.size], kind="stable")])
        covered = self.chosen.of_id[order]
        most_before = np.maximum.accumulate(np.append(0, covered))[:-1]
        kept: NDArray[np.intp] = order[covered > most_before]
        return kept


@dataclass(frozen=True)
class Certified:
    """The certified pair with the largest coverage."""

    tau_id: float
    tau_ood: float
    accepted: int  # on the certification split
    wrong: int
    tests: int  # how many hypotheses were tested, the failing one included


def certify(front: Front, tested: Counts, risk: float, delta: float) -> Certified | None:
    """Walk the sequence with the counts of the certification split; None when its very first pair fails."""
    sequence = front.sequence(risk)
    failed = tested.p_values(risk)[sequence] > delta
    passed = int(np.argmax(failed)) if failed.any() else len(failed)
    if passed == 0:
        return None
    last = sequence[passed - 1]  # the sequence only grows in coverage
    tau_id, tau_ood = front.grid.pair(front.cells[last])
    accepted, wrong = int(tested.accepted[last]), int(tested.wrong[last])
    return Certified(tau_id, tau_ood, accepted, wrong, tests=min(passed + 1, len(failed)))


def pareto_front(covered: NDArray[np.int64], wrong: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions that no other dominates by covering as much with fewer wrong, loosest first.

    A pair that covers nothing is no point. Of several positions with the same counts the first is taken.
    """
    most = int(covered.max(initial=0))
    none = int(wrong.max(initial=0)) + 1
    fewest = np.full(most + 1, none, dtype=np.int64)
    np.minimum.at(fewest, covered, wrong)
    # A count stands on the front if it has fewer wrong than every larger count.
    looser = np.minimum.accumulate(np.append(fewest[1:], none)[::-1])[::-1]
    stands = fewest < looser
    stands[0] = False
    candidates = np.flatnonzero(stands[covered] & (wrong == fewest[covered]))
    _, first = np.unique(covered[candidates], return_index=True)
    return candidates[first][::-1]


class CertifiedSelector(Selector):
    """The pair with the largest coverage whose risk is certified by Pareto testing."""

    name = "certified"
    summary = "largest coverage with certified risk (--risk, --delta) by Pareto testing over both doors"
    goal = "coverage"
    certifies = True
    default_split = "30/40/30"

    def select(self, splits: Splits, parameters: Parameters) -> Selection:
        risk, delta = parameters.risk_limit, parameters.delta
        selection, certification = exact_parts(splits, parameters)
        usable = int(np.count_nonzero(certification.finite))
        certification_part(splits, usable, fewest_samples(risk, delta), risk, delta)
        if not (selection.is_id & selection.finite).any():
            raise SelectionRefused(
                "no ID sample of the selection split has two finite scores: there is no pair to test"
            )
        front = Front.of(selection)
        found = certify(front, front.on(certification), risk, delta)
        if found is None:
            pair = front.grid.pair(front.cells[front.sequence(risk)[0]])
            raise out_of_reach(splits, (selection, certification), pair, parameters, delta)
        stamp = certificate(
            "pareto",
            scope_of(splits, parameters),
            parameters,
            bound=risk,  # a fixed sequence certifies the limit and nothing sharper
            accepted=found.accepted,
            wrong=found.wrong,
            tests=found.tests,
        )
        details = {"grid": front.grid.describe(), "front": front.size, "tests": found.tests}
        promise = Promise("selective_risk", risk, "at_most")
        notes = front.grid.notes() + sampling_notes(splits, (selection, certification), parameters)
        return Selection(found.tau_id, found.tau_ood, (promise,), stamp, details, notes)
