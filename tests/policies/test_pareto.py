"""Pareto testing: the front against brute force, the walk against its own rules."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.binomial import p_value
from calibration.calibrate import calibrate
from calibration.errors import SelectionRefused
from calibration.resample import accepted_by
from calibration.select import Parameters
from calibration.select.grid import Grid
from calibration.select.pareto import Front, certify, pareto_front
from calibration.splits import split
from calibration.table import ScoreTable

points = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=60)


@given(points)
def test_the_front_is_what_nothing_dominates(pairs: list[tuple[int, int]]) -> None:
    covered, wrong = (np.array(column) for column in zip(*pairs, strict=True))
    front = pareto_front(covered, wrong)
    found = {(int(covered[i]), int(wrong[i])) for i in front}
    expected = {
        (c, w) for c, w in pairs if c > 0 and not any((c2 >= c and w2 <= w) and (c2, w2) != (c, w) for c2, w2 in pairs)
    }
    assert found == expected
    assert len(front) == len(found)
    assert (np.diff(covered[front]) < 0).all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), limit=st.sampled_from([3, 8, 1000]))
def test_counts_of_the_grid_equal_direct_counts(make, seed: int, limit: int) -> None:  # type: ignore[no-untyped-def]
    table = make(80, seed=seed, step=0.5, broken=0.1)
    weighted = ScoreTable(**(table.columns() | {"weight": np.arange(80.0)}))
    grid = Grid.of(table, table.is_id, limit)
    assert len(grid.tau_id) <= limit
    of_id = table.is_id & table.finite
    distinct = [len(np.unique(score[of_id])) for score in (table.s_id, table.s_ood)]
    assert grid.exact == (max(distinct) <= limit)
    everyone, right = grid.counts(table), grid.counts(weighted, table.correct, weighted=True)
    for i, j in np.ndindex(everyone.shape):
        tau_id, tau_ood = grid.tau_id[i], grid.tau_ood[j]
        accept = accepted_by(table, tau_id, tau_ood)
        assert everyone[i, j] == accept.sum()
        assert right[i, j] == weighted.weights[accept & table.correct].sum()
        assert grid.pair(i * len(grid.tau_ood) + j) == (tau_id, tau_ood)


def test_the_walk_starts_with_the_most_significant_and_only_grows(table: ScoreTable) -> None:
    front = Front.of(split(table, (0.3, 0.4, 0.3), 0).selection)
    for risk in (0.02, 0.1):
        sequence = front.sequence(risk)
        p = p_value(front.chosen.wrong, front.chosen.accepted, risk)
        assert p[sequence[0]] == p[front.size :].min()
        assert (np.diff(front.chosen.of_id[sequence]) > 0).all()
        assert (np.diff(p[sequence[1:]]) >= 0).all()
        assert (sequence[1:] < front.size).all()


def test_the_walk_stops_at_the_first_failure_and_keeps_what_came_before(table: ScoreTable) -> None:
    parts = split(table, (0.3, 0.4, 0.3), 0)
    assert parts.certification is not None
    front = Front.of(parts.selection)
    tested = front.on(parts.certification)
    sequence = front.sequence(0.1)
    found = certify(front, tested, 0.1, 0.05)
    assert found is not None
    kept = None
    for cell in sequence:
        tau_id, tau_ood = front.grid.pair(front.cells[cell])
        accept = accepted_by(parts.certification, tau_id, tau_ood)
        wrong = int((accept & ~parts.certification.correct).sum())
        if p_value(wrong, int(accept.sum()), 0.1) > 0.05:
            break
        kept = (tau_id, tau_ood, int(accept.sum()), wrong)
    assert (found.tau_id, found.tau_ood, found.accepted, found.wrong) == kept


def test_nothing_is_certified_when_the_first_test_fails(table: ScoreTable) -> None:
    parts = split(table, (0.3, 0.4, 0.3), 0)
    assert parts.certification is not None
    front = Front.of(parts.selection)
    hopeless = ScoreTable(**(parts.certification.columns() | {"correct": np.zeros(len(parts.certification), bool)}))
    assert certify(front, front.on(hopeless), 0.1, 0.05) is None


def test_the_certificate_says_what_was_tested(table: ScoreTable) -> None:
    policy = calibrate(table, "certified", Parameters(risk=0.08, delta=0.1)).policy
    certificate = policy.certificate
    assert certificate is not None
    assert (certificate.kind, certificate.risk, certificate.delta) == ("pareto", 0.08, 0.1)
    assert certificate.accepted is not None
    assert certificate.wrong is not None
    assert p_value(certificate.wrong, certificate.accepted, 0.08) <= 0.1
    assert certificate.bound is not None
    assert certificate.bound <= 0.08
    assert certificate.statement == "selective risk ≤ 8 % with probability ≥ 90 %, calibration mix only"
    assert policy.parameters["selection"]["grid"]["exact"]


def test_a_stated_prevalence_is_certified_for_that_mix(make) -> None:  # type: ignore[no-untyped-def]
    table = make(8000)
    plain, few = (calibrate(table, "certified", Parameters(risk=0.05, prevalence=pi)).policy for pi in (None, 0.05))
    assert few.certificate is not None
    assert few.certificate.scope == "stated mix only: 5 % OOD of the calibration's kind"
    assert few.evidence is not None
    assert plain.evidence is not None
    assert few.evidence.prevalence == pytest.approx(0.05)
    assert re.search(r"plain sample of [\d,]+ of 5,\d+ rows: what the weights describe$", few.evidence.notes[0])
    assert plain.evidence.notes == ()
    assert plain.evidence.prevalence == pytest.approx(0.3, abs=0.02)
    assert few.evidence.outcome.id_coverage.value > plain.evidence.outcome.id_coverage.value  # type: ignore[operator]


def test_refusals_say_how_many_samples_would_do(make, table: ScoreTable) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        SelectionRefused, match=r"risk ≤ 0.1 % at δ = 5 % needs at least 2995 accepted .*[\d,]+ samples"
    ):
        calibrate(table, "certified", Parameters(risk=0.001))
    with pytest.raises(SelectionRefused, match=r"cannot be certified with 2,000 samples: .* about [\d,]+ samples"):
        calibrate(make(2000), "certified", Parameters(risk=0.005))


def test_scores_that_say_nothing_are_refused_as_such(table: ScoreTable) -> None:
    rng = np.random.default_rng(0)
    noise = {name: rng.permutation(column) for name, column in (("s_id", table.s_id), ("s_ood", table.s_ood))}
    for method in ("certified", "sgr"):
        with pytest.raises(SelectionRefused, match="promises nothing; allow more risk or use better scores"):
            calibrate(ScoreTable(**(table.columns() | noise)), method, Parameters(risk=0.05))


@pytest.mark.parametrize("seed", range(4))
def test_bringing_the_samples_asked_for_leads_to_a_certificate(make, seed: int) -> None:  # type: ignore[no-untyped-def]
    n = 600
    for _ in range(4):
        try:
            policy = calibrate(make(n, seed=seed), "certified", Parameters(risk=0.02)).policy
        except SelectionRefused as refusal:
            more = int(str(refusal).rsplit("about ", 1)[1].split()[0].replace(",", ""))
            assert n < more <= 50 * n
            n = more
        else:
            assert n > 600
            assert policy.certificate is not None
            return
    pytest.fail(f"still refused with {n} samples")


def test_a_quantile_grid_is_said_to_be_one(make) -> None:  # type: ignore[no-untyped-def]
    table = make(9000, step=0.0)
    for method in ("certified", "coverage"):
        policy = calibrate(table, method, Parameters(risk=0.1)).policy
        assert policy.evidence is not None
        assert policy.evidence.notes == ("thresholds were chosen from a quantile grid of 1,000 × 1,000 pairs",)
        assert not policy.parameters["selection"]["grid"]["exact"]


def test_without_ood_the_ood_door_stands_at_the_lowest_score_seen(make) -> None:  # type: ignore[no-untyped-def]
    table = make(3000, ood=0.0)
    selection = split(table, (0.3, 0.4, 0.3), 0).selection
    policy = calibrate(table, "certified", Parameters(risk=0.05)).policy
    assert policy.tau_ood == selection.s_ood.min()
