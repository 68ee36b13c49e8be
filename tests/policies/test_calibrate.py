"""From table to policy: evidence recomputed by hand, claims held against it, splits that never mix."""

import numpy as np
import pytest
from scipy.stats import binomtest

from calibration.calibrate import Calibration, calibrate
from calibration.errors import SelectionRefused
from calibration.evidence import Estimate
from calibration.metrics import ds_f1, f1
from calibration.policy import Policy
from calibration.select import SELECTORS, Parameters
from calibration.table import ScoreTable


@pytest.fixture(scope="module")
def made(table: ScoreTable) -> Calibration:
    return calibrate(table, "dsf1", Parameters(seed=4))


def assert_exact(found: Estimate, events: int, trials: int) -> None:
    expected = binomtest(events, trials).proportion_ci(0.95, method="exact")
    assert found.method == "clopper_pearson"
    assert (found.value, found.low, found.high) == pytest.approx((events / trials, expected.low, expected.high))


def test_rates_are_those_of_the_evaluation_split(made: Calibration) -> None:
    part, policy = made.splits.evaluation, made.policy
    accept = (part.s_id >= policy.tau_id) & (part.s_ood >= policy.tau_ood)
    right, taken = int((accept & part.correct).sum()), int(accept.sum())
    assert policy.evidence is not None
    found = policy.evidence.outcome
    assert (found.accepted, found.true_accept) == (taken, right)
    assert found.false_accept_ood == (accept & ~part.is_id).sum()
    assert found.false_accept_id == (accept & part.is_id & ~part.correct).sum()
    assert_exact(found.precision, right, taken)
    assert_exact(found.selective_risk, taken - right, taken)
    assert_exact(found.recall, right, part.n_id)
    assert_exact(found.id_coverage, int((accept & part.is_id).sum()), part.n_id)
    assert_exact(found.acceptance, taken, len(part))
    for group in ("near", "far"):
        rows = part.group == group
        assert_exact(found.ood_acceptance[group], int((accept & rows).sum()), int(rows.sum()))
    assert_exact(found.ood_acceptance["all"], int((accept & ~part.is_id).sum()), part.n_ood)
    assert found.f1.value == pytest.approx(2 * right / (taken + part.n_id))
    assert found.f1.method == "bootstrap"


def test_the_interval_of_f1_matches_a_plain_bootstrap(made: Calibration) -> None:
    part, policy = made.splits.evaluation, made.policy
    accept = policy.decide(part.s_id, part.s_ood).accept
    assert part.group is not None
    strata = [np.flatnonzero(part.group == name) for name in np.unique(part.group)]
    rng = np.random.default_rng(0)
    values = []
    for _ in range(3000):
        rows = np.concatenate([rng.choice(members, len(members)) for members in strata])
        values.append(2 * (accept & part.correct)[rows].sum() / (accept[rows].sum() + part.n_id))
    assert policy.evidence is not None
    found = policy.evidence.outcome.f1
    assert (found.low, found.high) == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.003)


def test_no_sample_is_in_two_splits(table: ScoreTable) -> None:
    made = calibrate(table, "certified", Parameters(risk=0.1))
    named = made.splits.named()
    assert list(named) == ["selection", "certification", "evaluation"]
    seen = [name for part in named.values() for name in part.id.tolist()]  # type: ignore[union-attr]
    assert len(seen) == len(set(seen)) == len(table)
    assert made.policy.data is not None
    for name, part in named.items():
        record = made.policy.data.splits[name]
        assert (record.n, record.n_id, record.fingerprint) == (len(part), part.n_id, part.fingerprint())


def test_single_doors_are_chosen_and_judged_on_the_same_splits(made: Calibration) -> None:
    chosen_on, judged_on = made.splits.selection, made.splits.evaluation
    assert made.policy.evidence is not None
    evidence = made.policy.evidence
    for door in ("s_id", "s_ood"):
        best = f1(chosen_on, door)  # type: ignore[arg-type]
        single = evidence.single[door]
        assert single.tau == best.tau
        accept = getattr(judged_on, door) >= best.tau
        value = 2 * (accept & judged_on.correct).sum() / (accept.sum() + judged_on.n_id)
        assert single.f1 is not None
        assert single.f1.value == pytest.approx(value)
        gain = next(gain for gain in evidence.gains if gain.over == door)
        assert gain.f1.value == pytest.approx(evidence.outcome.f1.value - value)  # type: ignore[operator]
        assert gain.f1.low > 0  # type: ignore[operator]


def test_transfer_is_table_2_in_both_directions(made: Calibration) -> None:
    assert made.policy.evidence is not None
    found = {(t.selected_on, t.tested_on): {row.door: row for row in t.rows} for t in made.policy.evidence.transfer}
    assert set(found) == {("near", "far"), ("far", "near")}
    chosen_on, judged_on = made.splits.selection, made.splits.evaluation
    source = chosen_on.take(chosen_on.is_id | (chosen_on.group == "near"))
    target = judged_on.take(judged_on.is_id | (judged_on.group == "far"))
    best = ds_f1(source)
    accept = (target.s_id >= best.tau_id) & (target.s_ood >= best.tau_ood)
    row = found["near", "far"]["double"]
    assert (row.tau_id, row.tau_ood, row.f1_selected) == (best.tau_id, best.tau_ood, best.value)
    assert row.f1 == pytest.approx(2 * (accept & target.correct).sum() / (accept.sum() + target.n_id))
    assert row.f1_optimal == ds_f1(target).value
    for rows in found.values():
        assert all(row.f1 <= row.f1_optimal for row in rows.values())
        assert rows["double"].f1_optimal >= max(rows["s_id"].f1_optimal, rows["s_ood"].f1_optimal)


def test_a_policy_that_misses_its_claim_is_rejected_with_the_reason(table: ScoreTable) -> None:
    policy = calibrate(table, "dsf1", Parameters(risk=0.001)).policy
    assert policy.status == "rejected"
    assert len(policy.status_reasons) == 1
    assert policy.status_reasons[0].startswith("claimed selective risk ≤ 0.1 %, held out ")
    missed = next(claim for claim in policy.evidence.claims if not claim.met)  # type: ignore[union-attr]
    assert missed.held_out.low > missed.limit  # type: ignore[operator]


def test_a_claim_within_the_error_of_the_evidence_stands(table: ScoreTable) -> None:
    measured = calibrate(table, "dsf1").policy.evidence.outcome.selective_risk  # type: ignore[union-attr]
    limit = 0.5 * (measured.low + measured.value)  # type: ignore[operator]
    policy = calibrate(table, "dsf1", Parameters(risk=limit)).policy
    assert policy.status == "validated"
    claim = next(claim for claim in policy.evidence.claims if claim.metric == "selective_risk")  # type: ignore[union-attr]
    assert claim.met
    assert claim.within_error


def test_a_coverage_asked_for_is_a_claim(table: ScoreTable) -> None:
    policy = calibrate(table, "certified", Parameters(risk=0.02, min_coverage=0.99)).policy
    assert policy.status == "rejected"
    assert "ID coverage ≥ 99 %" in policy.status_reasons[0]


def test_a_shifted_evaluation_split_rejects_an_f1_policy(make) -> None:  # type: ignore[no-untyped-def]
    """Half the ids of one stratum behave differently: what was chosen on the other half does not hold."""
    from calibration.assess import assess
    from calibration.select import get_selector
    from calibration.splits import Splits

    good, bad = make(1500, seed=1), make(1500, seed=2, error=0.5)
    splits = Splits(selection=good, evaluation=bad)
    selector, parameters = get_selector("dsf1"), Parameters()
    chosen = selector.select(splits, parameters)
    policy = Policy(tau_id=chosen.tau_id, tau_ood=chosen.tau_ood)
    evidence = assess(policy, selector, splits, parameters, chosen.promises)
    assert [claim.met for claim in evidence.claims] == [False]


def test_a_stated_prevalence_weighs_the_evidence(table: ScoreTable) -> None:
    made = calibrate(table, "dsf1", Parameters(prevalence=0.02))
    policy, part = made.policy, made.splits.evaluation
    accept = policy.decide(part.s_id, part.s_ood).accept
    c, a = accept[part.is_id].mean(), accept[~part.is_id].mean()
    r = 1 - part.correct[accept & part.is_id].mean()
    assert policy.evidence is not None
    assert policy.evidence.prevalence == pytest.approx(0.02)
    expected = (0.98 * c * r + 0.02 * a) / (0.98 * c + 0.02 * a)
    assert policy.evidence.outcome.selective_risk.value == pytest.approx(expected)
    assert policy.evidence.outcome.selective_risk.method == "bootstrap"
    assert policy.evidence.outcome.id_coverage.method == "clopper_pearson"


def test_a_policy_document_survives_the_way_to_disk(made: Calibration) -> None:
    assert Policy.from_json(made.policy.to_json()) == made.policy


def test_quantiles_of_the_scores_are_recorded(made: Calibration, table: ScoreTable) -> None:
    data = made.policy.data
    assert data is not None
    assert data.quantiles["s_ood"] == pytest.approx(np.quantile(table.s_ood, data.quantile_levels))
    assert data.accuracy == pytest.approx(table.correct.sum() / table.n_id)


def test_per_class_thresholds_fit_each_class(make) -> None:  # type: ignore[no-untyped-def]
    table = make(6000, classes=3)
    shift = np.array([0.0, 2.0, -3.0])[table.prediction]
    moved = ScoreTable(**(table.columns() | {"s_id": table.s_id + shift}))
    one, each = (calibrate(moved, "dsf1", Parameters(per_class=flag)).policy for flag in (False, True))
    assert each.per_class is not None
    assert [entry.label for entry in each.per_class] == [0, 1, 2]
    taus = [entry.tau_id for entry in each.per_class]
    assert taus[2] < taus[0] < taus[1]
    assert each.tau_id == max(taus)
    assert each.evidence.outcome.f1.low > one.evidence.outcome.f1.high  # type: ignore[union-attr, operator]
    assert set(each.evidence.single) == {"s_id", "s_ood"}  # type: ignore[union-attr]
    assert [claim.metric for claim in each.evidence.claims] == ["f1"]  # type: ignore[union-attr]


def test_per_class_certificates_share_delta(make) -> None:  # type: ignore[no-untyped-def]
    policy = calibrate(make(9000, classes=3), "certified", Parameters(risk=0.08, delta=0.09, per_class=True)).policy
    certificate = policy.certificate
    assert certificate is not None
    assert certificate.statement == (
        "selective risk ≤ 8 % in each of 3 classes with joint probability ≥ 91 %, calibration mix only"
    )
    assert policy.status == "validated"


def test_per_class_claims_are_the_weakest_of_all_classes(make) -> None:  # type: ignore[no-untyped-def]
    table = make(6000, classes=3)
    uneven = np.where((table.prediction == 2) & (np.arange(6000) % 2 == 0), 0, table.prediction)
    policy = calibrate(
        ScoreTable(**(table.columns() | {"prediction": uneven})), "tpr", Parameters(per_class=True)
    ).policy
    one = calibrate(table, "tpr").policy
    limits = [[claim.limit for claim in each.evidence.claims] for each in (policy, one)]  # type: ignore[union-attr]
    assert len(limits[0]) == 2
    assert all(weak < strong for weak, strong in zip(*limits, strict=True))


def test_per_class_thresholds_are_refused_where_a_class_has_too_little(make) -> None:  # type: ignore[no-untyped-def]
    table = make(3000, classes=3)
    rare = np.where((table.prediction == 2) & (np.arange(3000) % 10 > 0), 0, table.prediction)
    thin = ScoreTable(**(table.columns() | {"prediction": rare}))
    with pytest.raises(SelectionRefused, match=r"need 100 ID samples .*class 2 has \d+: bring about \d+ times"):
        calibrate(thin, "dsf1", Parameters(per_class=True))
    with pytest.raises(SelectionRefused, match=r"need 459 ID samples .* in the certification split"):
        calibrate(table, "certified", Parameters(risk=0.01, delta=0.03, per_class=True))


def test_per_class_thresholds_need_class_numbers(table: ScoreTable) -> None:
    with pytest.raises(SelectionRefused, match="column 'prediction'"):
        calibrate(table, "dsf1", Parameters(per_class=True))
    named = ScoreTable(**(table.columns() | {"prediction": np.full(len(table), "cat")}))
    with pytest.raises(SelectionRefused, match="'cat' arrived"):
        calibrate(named, "dsf1", Parameters(per_class=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"is_id": np.zeros(3000, dtype=bool), "correct": np.zeros(3000, dtype=bool)}, "no ID rows"),
        ({"correct": np.zeros(3000, dtype=bool)}, "no ID row is classified correctly"),
    ],
)
def test_tables_without_anything_to_accept_are_refused(
    table: ScoreTable, change: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(SelectionRefused, match=message):
        calibrate(ScoreTable(**(table.columns() | change)), "dsf1")


def test_a_prevalence_cannot_be_stated_without_ood(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SelectionRefused, match="without OOD data"):
        calibrate(make(1000, ood=0.0), "dsf1", Parameters(prevalence=0.1))


@pytest.mark.parametrize("name", SELECTORS)
def test_id_rows_without_finite_scores_are_refused_as_such(table: ScoreTable, name: str) -> None:
    blind = np.where(table.is_id, np.nan, table.s_id)
    with pytest.raises(SelectionRefused, match="two finite scores"):
        calibrate(ScoreTable(**(table.columns() | {"s_id": blind})), name)


def test_a_class_without_finite_scores_is_named(make) -> None:  # type: ignore[no-untyped-def]
    table = make(8000, classes=2)
    blind = np.where(table.is_id & (table.prediction == 1), np.nan, table.s_id)
    with pytest.raises(SelectionRefused, match=r"class 1: .* two finite scores"):
        calibrate(ScoreTable(**(table.columns() | {"s_id": blind})), "certified", Parameters(risk=0.1, per_class=True))


def test_ood_without_weight_is_no_ood_to_the_certificate(table: ScoreTable) -> None:
    weightless = table.reweighted(table.is_id.astype(float))
    made = calibrate(weightless, "certified", Parameters(risk=0.1)).policy
    assert made.certificate is not None
    assert made.certificate.scope == "id_only"
