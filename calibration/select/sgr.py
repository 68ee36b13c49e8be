"""Selection with guaranteed risk (Geifman & El-Yaniv 2017, Algorithm 1), behind a fixed OOD door."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.best import best_pair
from calibration.binomial import fewest_samples, p_value, upper_bound
from calibration.select.base import Parameters, Promise, Selection, Selector
from calibration.select.exact import (
    certificate,
    certification_part,
    exact_parts,
    out_of_reach,
    sampling_notes,
    scope_of,
)
from calibration.splits import Splits
from calibration.table import ScoreTable


@dataclass(frozen=True)
class SgrResult:
    """A threshold with the bound that holds for it, and the counts behind the bound."""

    tau: float
    bound: float
    accepted: int
    wrong: int
    steps: int


def sgr(score: NDArray[np.float64], wrong: NDArray[np.bool_], risk: float, delta: float) -> SgrResult | None:
    """The loosest threshold met by the binary search whose risk bound stays below `risk`; None if there is none.

    ⌈log2 m⌉ candidate thresholds, each with the binomial tail inversion at delta/⌈log2 m⌉. The published listing
    returns its last candidate even where the bound of that one is above the target; the union bound covers every
    candidate of the search, so the last one that met the target is returned instead.
    """
    m = len(score)
    if m < 2:
        return None
    order = np.argsort(score, kind="stable")
    ascending = score[order]
    errors_from = np.append(np.cumsum(wrong[order][::-1])[::-1], 0)
    steps = math.ceil(math.log2(m))
    low, high = 1, m
    best: SgrResult | None = None
    for _ in range(steps):
        z = -(-(low + high) // 2)
        tau = float(ascending[z - 1])
        first = int(np.searchsorted(ascending, tau, side="left"))  # ties are accepted together
        accepted, errors = m - first, int(errors_from[first])
        bound = float(upper_bound(errors, accepted, delta / steps))
        if bound < risk:
            high = z
            best = SgrResult(tau, bound, accepted, errors, steps)
        else:
            low = z
    return best


class SgrSelector(Selector):
    """τ_ood from the DS-F1 optimum of the selection split, τ_id by SGR on the certification split."""

    name = "sgr"
    summary = "largest coverage with guaranteed risk (--risk, --delta) by binary search, calibration mix only"
    goal = "coverage"
    certifies = True
    default_split = "30/40/30"

    def select(self, splits: Splits, parameters: Parameters) -> Selection:
        risk, delta = parameters.risk_limit, parameters.delta
        selection, certification = exact_parts(splits, parameters)
        tau_ood = best_pair(selection).tau_ood
        passing = certification.take(certification.finite & (certification.s_ood >= tau_ood))
        steps = math.ceil(math.log2(max(len(passing), 2)))
        certification_part(splits, len(passing), fewest_samples(risk, delta / steps), risk, delta)
        found = sgr(passing.s_id, ~passing.correct, risk, delta)
        if found is None:
            pair = _most_promising(selection, tau_ood, risk), tau_ood
            raise out_of_reach(splits, (selection, certification), pair, parameters, delta / steps)
        stamp = certificate(
            "sgr",
            scope_of(splits, parameters),
            parameters,
            bound=found.bound,
            accepted=found.accepted,
            wrong=found.wrong,
            tests=found.steps,
        )
        promise = Promise("selective_risk", risk, "at_most")
        notes = sampling_notes(splits, (selection, certification), parameters)
        return Selection(found.tau, tau_ood, (promise,), stamp, {"steps": found.steps}, notes)


def _most_promising(selection: ScoreTable, tau_ood: float, risk: float) -> float:
    """The most significant ID door of the selection split, behind the OOD door."""
    passing = selection.take(selection.finite & (selection.s_ood >= tau_ood))
    order = np.argsort(-passing.s_id, kind="stable")
    wrong = np.cumsum(~passing.correct[order])
    best = np.argmin(p_value(wrong, np.arange(1, len(order) + 1), risk))
    return float(passing.s_id[order[best]])
