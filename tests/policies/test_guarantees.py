"""The promises hold in simulation: a smaller run of benchmarks/guarantees.py at a fixed seed."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibration.calibrate import calibrate
from calibration.select import Parameters

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "guarantees.py"
TRIALS = 300


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("guarantees", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["guarantees"] = module
    spec.loader.exec_module(module)
    return module


guarantees = load()
POPULATIONS = {
    "good": guarantees.GOOD,
    "heavy ties": replace(guarantees.GOOD, step=0.5),
    "mediocre": guarantees.MEDIOCRE,
}


@pytest.fixture(scope="module", params=list(POPULATIONS))
def cells(request: pytest.FixtureRequest) -> Any:
    return guarantees.simulate(POPULATIONS[request.param], 3000, TRIALS, seed=11)


def test_violations_stay_within_delta(cells: Any) -> None:
    """Nine levels, two methods: none may be above delta beyond what chance allows (binomial test at 0.1 %)."""
    for (method, risk, delta), cell in cells.items():
        assert cell.trials == TRIALS
        assert cell.doubt(delta, cell.violations) > 0.001, (method, risk, delta, cell)


def test_the_prevalence_budget_is_exceeded_within_delta(cells: Any) -> None:
    for (method, risk, delta), cell in cells.items():
        assert cell.doubt(delta, cell.budget_violations) > 0.001, (method, risk, delta, cell)


def test_certified_covers_at_least_as_much_as_sgr(cells: Any) -> None:
    for (method, risk, delta), cell in cells.items():
        if method == "certified":
            assert cell.coverage >= cells["sgr", risk, delta].coverage, (risk, delta)
            assert cell.refused <= cells["sgr", risk, delta].refused, (risk, delta)


def test_the_tests_are_not_idle(cells: Any) -> None:
    """A method that never errs at delta = 10 % wastes coverage; one that refuses everything proves nothing."""
    spent = [cell.violations for (method, _, delta), cell in cells.items() if method == "certified" and delta == 0.1]
    assert sum(spent) > 0
    assert cells["certified", 0.1, 0.1].refused == 0


def test_the_population_formulas_agree_with_a_large_sample() -> None:
    import numpy as np

    from calibration.resample import accepted_by

    population = guarantees.MEDIOCRE
    table = population.draw(400_000, np.random.default_rng(0))
    accept = accepted_by(table, 1.5, 0.7)
    assert population.risk(1.5, 0.7) == pytest.approx((accept & ~table.correct).sum() / accept.sum(), abs=0.002)
    assert population.coverage(1.5, 0.7) == pytest.approx((accept & table.is_id).sum() / table.n_id, abs=0.003)


@pytest.mark.parametrize("method", ["certified", "sgr"])
def test_copies_of_samples_are_no_evidence(make, method: str) -> None:  # type: ignore[no-untyped-def]
    """Rows that share an id are one sample: eight copies certify no more than one would."""
    table = make(1200, seed=4)
    copies = table.take(np.repeat(np.arange(len(table)), 8))
    once, often = (calibrate(each, method, Parameters(risk=0.1, delta=0.05, seed=1)).policy for each in (table, copies))
    assert once.certificate is not None
    assert often.certificate is not None
    assert often.certificate.accepted == pytest.approx(once.certificate.accepted, rel=0.3)
    assert often.certificate.budget.id_acceptance.low < once.certificate.budget.id_acceptance.value  # type: ignore[union-attr]
    assert any("one row of each id" in note for note in often.evidence.notes)  # type: ignore[union-attr]
