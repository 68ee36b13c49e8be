"""The contract of every registered selector: a new one is tested by being registered."""

import numpy as np
import pytest

from calibration.calibrate import calibrate
from calibration.errors import SelectionRefused
from calibration.resample import accepted_by
from calibration.select import SELECTORS, Parameters, Selection, get_selector
from calibration.splits import Splits, parse_fractions, split
from calibration.table import ScoreTable
from calibration.thresholds import OPEN

PARAMETERS = Parameters(risk=0.1, delta=0.1)
everyone = pytest.mark.parametrize("name", list(SELECTORS))


def splits_of(table: ScoreTable, name: str, seed: int = 0) -> Splits:
    selector = get_selector(name)
    return split(table, parse_fractions(selector.default_split, 3 if selector.certifies else 2), seed)


def select(table: ScoreTable, name: str, parameters: Parameters = PARAMETERS) -> Selection:
    return get_selector(name).select(splits_of(table, name), parameters)


def mapped(table: ScoreTable, transform) -> ScoreTable:  # type: ignore[no-untyped-def]
    return ScoreTable(**(table.columns() | {"s_id": transform(table.s_id), "s_ood": transform(table.s_ood)}))


@everyone
def test_thresholds_are_scores_of_the_table_or_open(table: ScoreTable, name: str) -> None:
    chosen = select(table, name)
    assert chosen.tau_id == OPEN or chosen.tau_id in table.s_id
    assert chosen.tau_ood == OPEN or chosen.tau_ood in table.s_ood


@everyone
def test_the_same_seed_gives_the_same_thresholds(table: ScoreTable, name: str) -> None:
    assert select(table, name) == select(table, name)


@everyone
def test_the_order_of_rows_does_not_matter(table: ScoreTable, name: str) -> None:
    shuffled = table.take(np.random.default_rng(1).permutation(len(table)))
    assert select(shuffled, name) == select(table, name)


@everyone
def test_increasing_maps_of_the_scores_map_the_thresholds(table: ScoreTable, name: str) -> None:
    def squeeze(x: np.ndarray) -> np.ndarray:
        return np.exp(0.5 * x) - 3.0

    before, after = select(table, name), select(mapped(table, squeeze), name)
    assert squeeze(np.array([before.tau_id, before.tau_ood])).tolist() == [after.tau_id, after.tau_ood]


@everyone
def test_rows_without_finite_scores_are_never_thresholds_nor_accepted(make, name: str) -> None:  # type: ignore[no-untyped-def]
    table = make(4000, broken=0.03, error=0.03)
    policy = calibrate(table, name, Parameters(risk=0.15, delta=0.1, min_coverage=0.8)).policy
    assert np.isfinite([policy.tau_id, policy.tau_ood]).all()
    accept = policy.decide(table.s_id, table.s_ood).accept
    assert accept.any()
    assert not accept[~table.finite].any()
    assert policy.data is not None
    assert policy.data.not_finite == int((~table.finite).sum()) > 0


@everyone
def test_selection_looks_at_no_row_of_the_evaluation_split(table: ScoreTable, name: str) -> None:
    parts = splits_of(table, name)
    spoiled = mapped(parts.evaluation, lambda x: -x)
    other = Splits(parts.selection, spoiled, parts.certification)
    selector = get_selector(name)
    assert selector.select(parts, PARAMETERS) == selector.select(other, PARAMETERS)


@everyone
def test_too_few_rows_are_refused_with_the_number_needed(make, name: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SelectionRefused, match=r"ID samples are too few.*bring at least \d+ ID samples"):
        calibrate(make(60), name, PARAMETERS)


@everyone
def test_the_number_asked_for_is_enough(make, name: str) -> None:  # type: ignore[no-untyped-def]
    few = make(60)
    with pytest.raises(SelectionRefused) as refusal:
        calibrate(few, name, Parameters(risk=0.3, delta=0.1))
    number = int(str(refusal.value).rsplit("at least ", 1)[1].split()[0])
    enough = make(2 * number, ood=0.0)
    rows = np.flatnonzero(enough.is_id)[:number]
    assert calibrate(enough.take(rows), name, Parameters(risk=0.3, delta=0.1)).policy.evidence is not None


@everyone
def test_without_ood_data_the_certificate_is_id_only(make, name: str) -> None:  # type: ignore[no-untyped-def]
    policy = calibrate(make(3000, ood=0.0), name, PARAMETERS).policy
    assert policy.certificate is not None
    assert policy.certificate.scope == "id_only"
    assert policy.certificate.budget is not None
    assert policy.certificate.budget.id_only
    assert policy.certificate.budget.pi_star is None
    assert policy.evidence is not None
    assert policy.evidence.outcome.ood_acceptance == {}


@everyone
def test_every_policy_carries_evidence_a_budget_and_its_data(table: ScoreTable, name: str) -> None:
    policy = calibrate(table, name, PARAMETERS, sources=("t.csv",), bundle="c" * 64).policy
    assert policy.status in {"validated", "rejected"}
    assert policy.bundle == "c" * 64
    assert policy.evidence is not None
    assert policy.evidence.claims
    assert set(policy.evidence.single) == {"s_id", "s_ood"}
    assert {(t.selected_on, t.tested_on) for t in policy.evidence.transfer} == {("near", "far"), ("far", "near")}
    assert policy.certificate is not None
    assert policy.certificate.budget is not None
    assert policy.certificate.budget.curve[0].prevalence == 0.0
    assert policy.data is not None
    assert policy.data.fingerprint == table.fingerprint()
    assert policy.data.sources == ("t.csv",)
    assert sum(part.n for part in policy.data.splits.values()) == len(table)
    assert policy.parameters["seed"] == 0


@everyone
def test_weights_that_are_all_equal_change_nothing(table: ScoreTable, name: str) -> None:
    weighted = ScoreTable(**(table.columns() | {"weight": np.full(len(table), 3.0)}))
    assert (select(weighted, name).tau_id, select(weighted, name).tau_ood) == (
        select(table, name).tau_id,
        select(table, name).tau_ood,
    )


@everyone
def test_unequal_weights_are_used(make, name: str) -> None:  # type: ignore[no-untyped-def]
    table = make(6000)
    rng = np.random.default_rng(0)
    weighted = ScoreTable(**(table.columns() | {"weight": rng.choice([1.0, 4.0], len(table))}))
    policy = calibrate(weighted, name, PARAMETERS).policy
    assert policy.data is not None
    assert policy.data.weighted
    assert policy.evidence is not None
    assert policy.evidence.outcome.selective_risk.method == "bootstrap"


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SelectionRefused, match="'best'; choose one of dsf1, sgr, certified, coverage, tpr"):
        get_selector("best")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"risk": 0.0}, r"risk must lie in \(0, 1\), 0.0 arrived"),
        ({"delta": 1.0}, "delta"),
        ({"prevalence": 1.0}, r"prevalence must lie in \[0, 1\)"),
        ({"min_coverage": 1.5}, "min_coverage"),
        ({"risk": float("nan")}, "risk"),
    ],
)
def test_impossible_parameters_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(SelectionRefused, match=message):
        Parameters(**changes)  # type: ignore[arg-type]


def test_dsf1_is_the_best_pair_of_a_brute_search(make) -> None:  # type: ignore[no-untyped-def]
    table = make(260, step=0.5)
    parts = split(table, (0.5, 0.5), 0)
    chosen = get_selector("dsf1").select(parts, Parameters())
    part = parts.selection

    def f1(tau_id: float, tau_ood: float) -> float:
        accept = accepted_by(part, tau_id, tau_ood)
        return 2 * (accept & part.correct).sum() / (accept.sum() + part.n_id)

    best = max(f1(a, b) for a in np.unique(part.s_id) for b in np.unique(part.s_ood))
    assert f1(chosen.tau_id, chosen.tau_ood) == best == chosen.details["f1"]


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_coverage_keeps_the_share_with_the_fewest_wrong(make, share: float) -> None:  # type: ignore[no-untyped-def]
    table = make(400, step=0.25)
    parts = split(table, (0.5, 0.5), 0)
    chosen = get_selector("coverage").select(parts, Parameters(min_coverage=share))
    part = parts.selection

    def outcome(tau_id: float, tau_ood: float) -> tuple[int, int]:
        accept = accepted_by(part, tau_id, tau_ood)
        return int((accept & part.is_id).sum()), int((accept & ~part.correct).sum())

    pairs = [outcome(a, b) for a in np.unique(part.s_id) for b in np.unique(part.s_ood)]
    fewest = min(wrong for kept, wrong in pairs if kept >= share * part.n_id)
    kept, wrong = outcome(chosen.tau_id, chosen.tau_ood)
    assert kept >= share * part.n_id
    assert wrong == fewest


def test_tpr_keeps_the_share_at_each_door_and_no_stricter_threshold_does(table: ScoreTable) -> None:
    part = split(table, (0.5, 0.5), 0).selection
    chosen = select(table, "tpr")
    for score, rows, tau in ((part.s_ood, part.is_id, chosen.tau_ood), (part.s_id, part.correct, chosen.tau_id)):
        stricter = np.unique(score[score > tau])[0]
        assert (score[rows] >= tau).mean() >= 0.95 > (score[rows] >= stricter).mean()


def test_a_share_that_the_finite_rows_cannot_reach_is_refused(make) -> None:  # type: ignore[no-untyped-def]
    table = make(2000, broken=0.2)
    for name in ("coverage", "tpr"):
        with pytest.raises(SelectionRefused, match="cannot be kept"):
            select(table, name, Parameters(min_coverage=0.95))
