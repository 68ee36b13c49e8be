"""What the report says, as data."""

import json
from collections.abc import Callable

import jsonschema
import numpy as np
import pytest

from calibration.calibrate import calibrate
from calibration.errors import CalibrationError, TableError
from calibration.metrics import counts_at, ds_f1, evaluate, one_gate_risk_coverage
from calibration.policy import ClassThresholds, Policy
from calibration.report import Analysis, NamedTable, ReportDocument, Request, analyse, read_tables
from calibration.report.document import json_schema
from calibration.select import Parameters
from calibration.table import ScoreTable

Report = Callable[..., Analysis]
Table = Callable[..., ScoreTable]


def test_the_document_obeys_its_schema(report: Report, table: Table) -> None:
    found = report(table(), table(seed=0, shift=1.5), table(seed=0, shift=1.0), bootstrap=5).document
    written = json.loads(found.model_dump_json())
    jsonschema.Draft202012Validator(json_schema()).validate(written)
    assert ReportDocument.model_validate_json(found.model_dump_json()) == found


def test_without_a_policy_the_optimum_is_judged_and_called_optimistic(report: Report, table: Table) -> None:
    data = table()
    best, found = ds_f1(data), report(data).document
    assert (found.policy.tau_id, found.policy.tau_ood) == (best.tau_id, best.tau_ood)
    assert found.decisions["all"].f1 == best.value
    assert found.verdict[0].startswith("The best pair of thresholds for this table accepts")
    assert "optimistic" in found.verdict[2]


def test_counts_by_group_add_up_and_are_those_of_the_metrics(report: Report, table: Table) -> None:
    data = table()
    found = report(data, policy=Policy(tau_id=0.5, tau_ood=0.0)).document
    rows = found.decisions
    assert list(rows) == ["all", "in-distribution", "out-of-distribution", "group: far", "group: near"]
    counts = counts_at(data, 0.5, 0.0)
    whole = rows["all"]
    assert (whole.true_accept, whole.false_accept_id, whole.false_accept_ood) == (
        counts.true_accepts,
        counts.false_accepts_id,
        counts.false_accepts_ood,
    )
    assert whole.risk.value == counts.risk
    assert whole.coverage.value == counts.coverage
    assert rows["group: far"].accepted + rows["group: near"].accepted == whole.false_accept_ood
    assert whole.risk.low is not None
    assert whole.risk.low < counts.risk < whole.risk.high  # type: ignore[operator]


def test_every_sample_is_accepted_or_stopped_by_a_door(report: Report, table: Table) -> None:
    s_id = table().s_id.copy()
    s_id[:7] = np.nan
    found = report(table(s_id=s_id), policy=Policy(tau_id=0.5, tau_ood=0.0)).document
    assert [row.name for row in found.by_kind] == ["correct", "misclassified", "OOD: far", "OOD: near"]
    for row in found.by_kind:
        assert row.accepted + row.low_id + row.low_ood + row.low_both + row.not_finite == row.rows
    assert sum(row.not_finite for row in found.by_kind) == 7
    assert any("7 samples have a score that is not finite" in note for note in found.notes)


def test_classes_by_their_names(report: Report, table: Table) -> None:
    data = table()
    named = NamedTable("t", data, ["shirt", "coat", "bag", "boot"])
    found = report(tables=[named]).document.per_class
    assert [row.name for row in found] == ["shirt", "coat", "bag", "boot"]
    assert sum(row.rows for row in found) == len(data)
    coat = (data.prediction == 1) & (data.s_id >= 0)
    single = report(data, policy=Policy(tau_id=0.0, tau_ood=None)).document.per_class[1]
    assert single.accepted == np.count_nonzero(coat)
    assert single.risk.value == np.mean(~data.correct[coat])


def test_coverage_at_risk_has_one_meaning_for_every_gate(report: Report, table: Table) -> None:
    data = table()
    points = {(point.what, point.at): point for point in report(data).document.operating}
    five = points["coverage_at_risk", 0.05]
    assert five.double == evaluate(data)["operating"]["double"]["coverage_at_risk_5"]
    assert five.s_ood == one_gate_risk_coverage(data, "s_ood").coverage_at(0.05)
    assert five.double >= max(five.s_id, five.s_ood)  # type: ignore[operator,type-var]


def test_a_policy_is_judged_as_the_service_would(report: Report, table: Table) -> None:
    data = table()
    policy = Policy(
        tau_id=0.0, tau_ood=0.5, number=3, per_class=(ClassThresholds(label=2, tau_id=1.0, tau_ood=None),)
    )  # fmt: skip
    found = report(data, policy=policy)
    accepted = policy.decide(data.s_id, data.s_ood, None, data.prediction).accept
    assert (found.judged.accept == accepted).all()
    assert found.document.policy.per_class
    assert found.document.verdict[0].startswith("Policy 0003 accepts")


def test_an_open_door_is_null(report: Report, table: Table) -> None:
    found = report(table(), policy=Policy(tau_id=None, tau_ood=0.5)).document
    assert found.policy.tau_id is None
    assert json.loads(found.model_dump_json())["policy"]["tau_id"] is None


def test_a_policy_that_accepts_nothing(report: Report, table: Table) -> None:
    found = report(table(), policy=Policy(tau_id=1e9, tau_ood=0.5)).document
    assert found.decisions["all"].risk.value is None
    assert found.verdict[1] == "It accepts nothing, so it makes no error and gives no answer."


def test_the_table_of_the_calibration_is_recognised(table: Table, report: Report, tmp_path: object) -> None:
    data = table(1200)
    policy = calibrate(data, "dsf1", Parameters()).policy
    assert any("calibrated on" in note for note in report(data, policy=policy).document.notes)
    assert not report(table(1200, seed=5), policy=policy).document.notes


def test_transfer_between_groups(report: Report, table: Table) -> None:
    found = report(table()).document.transfer
    assert [(item.selected_on, item.tested_on) for item in found] == [("far", "near"), ("near", "far")]
    for item in found:
        assert all(row.f1 <= row.f1_optimal + 1e-12 for row in item.rows)


def test_prevalence_budget_of_these_rows(report: Report, table: Table) -> None:
    found = report(table(4000), policy=Policy(tau_id=2.0, tau_ood=1.0)).document
    assert found.prevalence is not None
    assert found.prevalence.pi_star is not None
    assert "By this table the risk stays at or below 5 %" in found.verdict[3]
    strict = report(table(), policy=Policy(tau_id=None, tau_ood=None)).document
    assert strict.prevalence is not None
    assert strict.prevalence.pi_star is None
    assert "not even without out-of-distribution inputs" in strict.verdict[3]


def test_without_ood_nothing_is_said_about_it(report: Report, table: Table) -> None:
    data = table()
    found = report(data.take(data.is_id)).document
    assert list(found.decisions) == ["all"]
    assert found.verdict[0].endswith("all of them are in-distribution.")
    assert found.verdict[3].startswith("This table has no out-of-distribution samples")
    assert found.transfer == []


def test_weights_take_the_exact_intervals_away(report: Report, table: Table) -> None:
    weight = np.random.default_rng(1).integers(1, 4, 400).astype(float)
    found = report(table(weight=weight)).document
    assert found.decisions["all"].risk.low is None
    assert found.prevalence is None
    assert found.table.weighted
    assert any("weights" in note for note in found.notes)


@pytest.mark.parametrize("rows", [2, 5, 11])
def test_tiny_tables(report: Report, table: Table, rows: int) -> None:
    assert report(table(rows), bootstrap=5).document.table.rows == rows


def test_refusals(report: Report, table: Table) -> None:
    data = table()
    with pytest.raises(TableError, match="at least one score table"):
        analyse(Request(tables=[]))
    with pytest.raises(TableError, match="table 0 has no in-distribution row with weight"):
        report(data.take(~data.is_id))
    with pytest.raises(TableError, match="No thresholds accept a correct row"):
        report(table(s_id=np.full(400, np.nan)))
    with pytest.raises(CalibrationError, match="need the column 'prediction'"):
        report(
            table(prediction=None, label=None),
            policy=Policy(tau_id=0.0, tau_ood=0.0, per_class=(ClassThresholds(label=0, tau_id=1.0, tau_ood=1.0),)),
        )


def test_tables_from_files_have_distinct_names_and_class_names(table: Table, tmp_path: object) -> None:
    from pathlib import Path

    import pyarrow as pa
    from pyarrow import parquet

    root = Path(str(tmp_path))
    (root / "a").mkdir()
    (root / "b").mkdir()
    paths = [root / "a" / "scores.parquet", root / "b" / "scores.csv", root / "one.parquet"]
    for path in paths:
        table().write(path)
    columns = parquet.read_table(paths[2])
    words = pa.array([f"class {number}" for number in table().prediction.tolist()])  # type: ignore[union-attr]
    parquet.write_table(columns.append_column("class", words), paths[2])
    found = read_tables([*paths, paths[2]])
    assert [each.name for each in found] == ["a/scores", "b/scores", f"{root.name}/one (1)", f"{root.name}/one (2)"]
    assert found[0].classes is None
    assert found[2].classes == [f"class {number}" for number in range(4)]


def test_a_budget_on_the_samples_that_chose_the_thresholds_claims_no_confidence(report: Report, table: Table) -> None:
    doubt = "that confidence would take thresholds chosen on other samples."
    right = {"correct": table(4000).is_id, "prediction": None, "label": None, "shift": 4.0}
    data = table(4000, **right)
    assert report(data).document.verdict[3].endswith(doubt)
    policy = calibrate(data, "dsf1", Parameters()).policy
    assert report(data, policy=policy).document.verdict[3].endswith(doubt)
    elsewhere = report(table(4000, seed=1, **right), policy=policy).document.verdict[3]
    assert elsewhere.endswith("of the kind seen here.")


def test_copies_of_samples_do_not_enlarge_the_budget(report: Report, table: Table) -> None:
    data, policy = table(1000), Policy(tau_id=2.0, tau_ood=1.0)
    once = report(data, policy=policy).document
    often = report(data.take(np.repeat(np.arange(1000), 6)), policy=policy).document
    assert once.prevalence == often.prevalence
    assert any("share ids" in note for note in often.notes)
    assert not once.notes


def test_the_certificate_of_a_rejected_policy_is_none(report: Report, table: Table) -> None:
    right = {"correct": table(2000).is_id, "prediction": None, "label": None, "shift": 4.0}
    policy = calibrate(table(2000, **right), "certified", Parameters(risk=0.1)).policy
    other = table(2000, seed=1, **right)
    assert report(other, policy=policy).document.verdict[2].startswith("Certified: selective risk ≤ 10 %")
    rejected = policy.model_copy(update={"status": "rejected", "status_reasons": ("it missed",)})
    assert report(other, policy=rejected).document.verdict[2].startswith("Nothing is certified: held-out data")
