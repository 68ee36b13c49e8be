"""The diff between two policies and the verdict on which is better."""

import numpy as np
import pytest

from calibration.calibrate import calibrate
from calibration.compare import compare
from calibration.judge import Diff
from calibration.policy import ClassThresholds, Policy
from calibration.select import Parameters
from calibration.select.base import Goal
from calibration.table import ScoreTable


def test_the_diff_counts_decisions() -> None:
    scores = np.arange(20.0)
    table = ScoreTable.from_columns(s_id=scores, s_ood=scores, is_id=[True] * 20, correct=[True] * 20)
    old, new = Policy(tau_id=10, tau_ood=0), Policy(tau_id=0, tau_ood=7)
    assert str(Diff.between(old, new, table)) == "3 of 20 decisions change: 3 new accepts, 0 new rejects"
    assert str(Diff.between(new, old, table)) == "3 of 20 decisions change: 0 new accepts, 3 new rejects"
    assert str(Diff.between(old, Policy(tau_id=11, tau_ood=0), table)) == (
        "1 of 20 decisions changes: 0 new accepts, 1 new reject"
    )
    assert str(Diff.between(old, old, table)) == "none of 20 decisions changes"
    assert str(Diff(5000, 9, 3)) == "12 of 5,000 decisions change: 9 new accepts, 3 new rejects"


def test_the_diff_uses_per_class_thresholds() -> None:
    table = ScoreTable.from_columns(
        s_id=[1.0, 1.0], s_ood=[1.0, 1.0], is_id=[True, True], correct=[True, True], prediction=[0, 1]
    )
    per_class = (ClassThresholds(label=1, tau_id=2.0, tau_ood=0.0),)
    diff = Diff.between(Policy(tau_id=0, tau_ood=0), Policy(tau_id=0, tau_ood=0, per_class=per_class), table)
    assert (diff.changed, diff.new_rejects) == (1, 1)


def test_a_much_better_policy_is_better_and_its_twin_is_not(table: ScoreTable) -> None:
    made = calibrate(table, "dsf1")
    held_out, new = made.splits.evaluation, made.policy
    poor = Policy(tau_id=-10.0, tau_ood=-10.0)
    found = compare(poor, new, held_out, goal="f1", seed=0)
    assert found.better
    accept = new.decide(held_out.s_id, held_out.s_ood).accept
    assert found.changed == found.new_rejects == int((~accept).sum())
    assert found.f1.low is not None
    assert 0 < found.f1.low < found.f1.value < found.f1.high  # type: ignore[operator]
    assert found.old.f1.value == pytest.approx(2 * held_out.correct.sum() / (len(held_out) + held_out.n_id))
    assert not compare(new, poor, held_out, goal="f1", seed=0).better
    twin = compare(new, new, held_out, goal="f1", seed=0)
    assert not twin.better
    assert "no clear gain" in twin.why
    assert twin.changed == 0


def test_an_active_policy_that_breaks_the_limit_is_replaced_by_one_that_holds_it(table: ScoreTable) -> None:
    made = calibrate(table, "certified", Parameters(risk=0.05))
    loose = Policy(tau_id=-10.0, tau_ood=-10.0)
    found = compare(loose, made.policy, made.splits.evaluation, goal="coverage", seed=0)
    assert found.id_coverage.value < 0  # type: ignore[operator]
    assert found.better
    assert "breaks the risk limit" in found.why


def test_a_stricter_active_policy_is_replaced_by_one_that_covers_more(table: ScoreTable) -> None:
    made = calibrate(table, "certified", Parameters(risk=0.05))
    strict = made.policy.model_copy(update={"tau_id": made.policy.tau_id + 1.0})
    assert compare(strict, made.policy, made.splits.evaluation, goal="coverage", seed=0).better
    assert not compare(made.policy, strict, made.splits.evaluation, goal="coverage", seed=0).better


def test_at_a_kept_share_the_lower_risk_wins(table: ScoreTable) -> None:
    made = calibrate(table, "coverage", Parameters(min_coverage=0.9))
    held_out = made.splits.evaluation
    everything = Policy(tau_id=-10.0, tau_ood=-10.0)
    assert compare(everything, made.policy, held_out, goal="risk", seed=0).better
    nothing_much = Policy(tau_id=5.0, tau_ood=4.0)
    found = compare(nothing_much, made.policy, held_out, goal="risk", seed=0)
    assert found.better
    assert "too little ID" in found.why


def test_a_policy_that_accepts_nothing_cannot_be_compared_on_risk(table: ScoreTable) -> None:
    made = calibrate(table, "tpr")
    silent = Policy(tau_id=1e9, tau_ood=0.0)
    found = compare(made.policy, silent, made.splits.evaluation, goal="risk", seed=0)
    assert not found.better
    assert found.selective_risk.value is None


@pytest.mark.parametrize("goal", ["f1", "coverage"])
def test_rows_without_ood_cannot_open_the_door_that_keeps_ood_out(make, goal: Goal) -> None:  # type: ignore[no-untyped-def]
    mixed, id_only = calibrate(make(), "dsf1"), calibrate(make(ood=0.0, seed=1), "dsf1")
    held_out = id_only.splits.evaluation
    found = compare(mixed.policy, id_only.policy, held_out, goal=goal, seed=0)
    assert found.id_coverage.low is not None
    assert found.id_coverage.low > 0  # on ID alone the looser doors do win
    assert not found.better
    assert "no OOD" in found.why
    strict_id = calibrate(make(ood=0.0, seed=2), "tpr", Parameters(min_coverage=0.3)).policy
    assert compare(strict_id, id_only.policy, held_out, goal=goal, seed=0).better  # neither has ever seen OOD
