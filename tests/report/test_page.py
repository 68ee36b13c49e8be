"""The page as a file: complete, small, and safe whatever the names."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from calibration.metrics import evaluate
from calibration.policy import ClassThresholds, Policy
from calibration.report import Analysis, NamedTable
from calibration.report.metric_table import FAMILIES, columns, filled
from calibration.report.page import render
from calibration.report.style import small
from calibration.table import ScoreTable

Report = Callable[..., Analysis]
Table = Callable[..., ScoreTable]
MEGABYTE = 1_000_000


def _data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert found is not None
    return json.loads(found[1])


def test_every_metric_of_the_evaluation_is_in_the_table(table: Table) -> None:
    metrics = evaluate(table())
    shown = {path for family in FAMILIES for path, _ in family.lines}

    def paths(part: dict[str, Any], above: str = "") -> set[str]:
        found: set[str] = set()
        for key, value in part.items():
            found |= paths(value, f"{above}{key}.") if isinstance(value, dict) else {above + key}
        return found

    apart = ("n_id", "n_ood", "n_not_finite", "prevalence", "groups", "averages", "bootstrap", "intervals")
    rest = {key: value for key, value in metrics.items() if key not in (*apart, "undefined", "notes")}
    assert paths(rest) == shown


def test_metrics_have_a_column_a_group_and_intervals(table: Table) -> None:
    metrics = evaluate(table(), bootstrap=5)
    parts = columns(metrics)
    assert list(parts) == ["all", "group far", "group near", "mean of groups"]
    label, path, cells = filled(FAMILIES[0], parts)[0]
    assert (label, path) == ("DS-F1 ↑", "ds_f1.value")
    ends = metrics["groups"]["far"]["intervals"]["ds_f1"]["value"]
    assert cells[1].value == f"{metrics['groups']['far']['ds_f1']['value']:.4f}"
    assert cells[1].interval == f"{ends['low']:.4f} – {ends['high']:.4f}"
    assert cells[3].interval == ""


def test_the_best_of_a_column_is_marked_unless_all_are_alike(report: Report, table: Table) -> None:
    page = render(report(table(), table(shift=1.0)))
    compared = page[page.index('id="comparison"') : page.index('id="transfer"')]
    whole = compared[: compared.index("By group")]
    rows = re.findall(r'<tr><th scope="row">(table \d)</th>(.*?)</tr>', whole)
    marks = [['class="best"' in cell for cell in re.findall(r"<td.*?</td>", cells)] for _, cells in rows]
    accuracy, ds_f1, f1_s_id = zip(*marks, strict=True).__next__(), *list(zip(*marks, strict=True))[1:3]
    assert accuracy == (False, False)
    assert ds_f1 == (True, False)
    assert f1_s_id == (False, False)


def test_large_tables_with_long_ids_make_small_pages(report: Report, table: Table) -> None:
    rows = 41_000
    page = render(report(table(rows, id=np.array([f"s3://bucket/{'x' * 450}/{i}.png" for i in range(rows)]))))
    assert len(page.encode()) < 4 * MEGABYTE
    assert "This page holds a sample of 20,000 of the 41,000 rows" in page
    kinds = _data(page)["figures"]["plane"]["data"]
    assert {trace["name"] for trace in kinds} >= {"correct: density", "correct", "out-of-distribution"}
    assert "2,500 of 41,000 samples are drawn as points" in page


def test_nothing_is_loaded_from_elsewhere(report: Report, table: Table) -> None:
    page = render(report(table()))
    markup = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"""(src|href|url)\s*[=(]\s*["']?(https?:|//)""", markup)
    assert "default-src 'none'" in markup


HOSTILE = [
    "</script><script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "<b>bold</b> %{x} {{ 7*7 }} & 'quotes'",
]


def test_names_stay_names(report: Report, table: Table) -> None:
    group = np.where(table().is_id, "id", np.where(table().group == "near", HOSTILE[0], HOSTILE[1]))
    named = [NamedTable(HOSTILE[i], table(group=group, shift=2.0 - i / 2), classes=[HOSTILE[2]] * 4) for i in range(3)]
    policy = Policy(tau_id=0.0, tau_ood=0.0, scores={"s_id": HOSTILE[0]}, method=HOSTILE[1])
    found = report(tables=named, title=HOSTILE[0], policy=policy, policy_source=HOSTILE[1], command=HOSTILE[0])
    page = render(found)
    for name in HOSTILE[:2]:
        assert name not in page
    assert page.count("</script>") == 3
    assert "{{ 7*7 }}" in page
    assert _data(page)["policy"]["scores"] == {"s_id": HOSTILE[0]}


@pytest.mark.parametrize(
    "leave_out", [{"group": None}, {"prediction": None, "label": None, "probabilities": None}, {"id": None}]
)
def test_columns_that_are_missing_take_their_figures_with_them(
    report: Report, table: Table, leave_out: dict[str, Any]
) -> None:
    drawn = _data(render(report(table(**leave_out))))["figures"]
    assert {"plane", "surface", "risk", "histogram-id", "histogram-ood", "stopped", "prevalence"} <= set(drawn)
    assert ("classes" in drawn) == ("prediction" not in leave_out)
    assert ("reliability" in drawn) == ("probabilities" not in leave_out)


def test_words_say_only_what_is_drawn(report: Report, table: Table) -> None:
    assert "riskiest first, with exact 95 % intervals." in render(report(table()))
    assert "riskiest first." in render(report(table(weight=np.linspace(0.5, 2.0, 400))))
    assert "There is no map, since s_id never varies." in render(report(table(s_id=np.ones(400))))


def test_a_door_far_away_does_not_squeeze_the_samples(report: Report, table: Table) -> None:
    drawn = _data(render(report(table(), policy=Policy(tau_id=1e6, tau_ood=0.0))))["figures"]
    assert drawn["plane"]["layout"]["xaxis"]["range"][1] < 10
    assert drawn["plane"]["layout"]["yaxis"]["range"][0] < 0.0 < drawn["plane"]["layout"]["yaxis"]["range"][1]
    assert "shapes" not in drawn["histogram-id"]["layout"]
    assert drawn["histogram-ood"]["layout"]["shapes"][0]["x0"] == 0.0


def test_hover_names_the_sample(report: Report, table: Table) -> None:
    s_id = table().s_id.copy()
    s_id[0] = np.nan
    plain = _data(render(report(table(id=None, s_id=s_id))))["figures"]["plane"]["data"]
    words = [word for trace in plain for word in trace["text"]]
    assert "row 1<br>" not in " ".join(words)
    assert any(word.startswith("row 2<br>predicted ") for word in words)
    named = _data(render(report(table())))["figures"]["plane"]["data"]
    assert any(word.startswith("sample-1<br>") for trace in named for word in trace["text"])


def test_a_table_without_any_finite_score_still_has_a_page(report: Report, table: Table) -> None:
    page = render(report(table(s_id=np.full(400, np.nan)), policy=Policy(tau_id=0.0, tau_ood=0.0)))
    assert "It accepts nothing" in page
    assert set(_data(page)["figures"]) == {"stopped", "reliability", "classes", "prevalence"}


CASES: dict[str, Callable[[Table], ScoreTable]] = {
    "without OOD": lambda table: table().take(np.arange(200)),
    "two rows": lambda table: table(2),
    "five rows": lambda table: table(5),
    "weights": lambda table: table(weight=np.linspace(0.0, 2.0, 400)),
    "one value": lambda table: table(s_id=np.ones(400), s_ood=np.zeros(400)),
    "every label right": lambda table: table(correct=table().is_id, prediction=None, label=None),
    "groups without a name": lambda table: table(group=np.where(table().group == "far", "", table().group)),
    "many groups": lambda table: table(group=np.array([f"group {i % 40}" for i in range(400)])),
    "infinite scores": lambda table: table(s_ood=np.where(table().s_ood > 2, np.inf, table().s_ood)),
}
POLICIES = {
    "per class": Policy(tau_id=0.0, tau_ood=0.0, per_class=(ClassThresholds(label=1, tau_id=1.0, tau_ood=None),)),
    "open doors": Policy(tau_id=None, tau_ood=None),
    "shut doors": Policy(tau_id=1e300, tau_ood=1e300),
}


@pytest.mark.parametrize("name", [*CASES, *POLICIES])
def test_every_kind_of_table_and_policy_has_a_page(report: Report, table: Table, name: str) -> None:
    data = CASES[name](table) if name in CASES else table()
    page = render(report(data, policy=POLICIES.get(name), bootstrap=2))
    assert {"plane", "surface", "risk"} <= set(_data(page)["figures"])
    assert "NaN" not in json.dumps(_data(page))


@pytest.mark.parametrize(("scale", "offset", "short"), [(1.0, 0.0, True), (1e300, 0.0, False), (1e-3, 1e9, False)])
def test_coordinates_are_short_only_where_no_point_moves(scale: float, offset: float, short: bool) -> None:
    values = offset + scale * np.random.default_rng(0).normal(size=100)
    found = small(np.append(values, np.nan))
    assert (found.dtype == np.float32) == short
    assert np.abs(found[:-1] - values).max() <= 1e-4 * np.ptp(values)
    assert np.isnan(found[-1])
