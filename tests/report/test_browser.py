"""The page as a reader meets it, in a real headless Chromium, from disk and without a network."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.metrics import Undefined, counts_at
from calibration.policy import Policy
from calibration.report import Analysis, NamedTable
from calibration.table import ScoreTable

Report = Callable[..., Analysis]
Table = Callable[..., ScoreTable]
Open = Callable[..., Any]
OPEN = -np.inf
HOSTILE = '</script><img src=x onerror="window.pwned=1"><b>%{x}</b>'
EVERYTHING = {
    "stopped", "plane", "surface", "risk", "histogram-id", "histogram-ood", "reliability", "classes", "prevalence",
    "ranks", "joint", "differences-ds_f1", "differences-ds_aurc",
}  # fmt: skip
SERIOUS = ("serious", "critical")
NO_FIGURES = "delete window.DecompressionStream"
"""The page without its figures is there at once, and its numbers do not need them."""
FAIL_SURFACE = """
const parse = JSON.parse;
JSON.parse = (text) => {
  const found = parse(text);
  if (found.figures) Object.defineProperty(found.figures.surface, "data", { get() { throw new Error("no map"); } });
  return found;
};
"""


@pytest.fixture(scope="module")
def full(report: Report, table: Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with every section, and names that try to get out."""
    from calibration.report import write_report

    ids = np.array([f"{HOSTILE}{i}" for i in range(400)])
    group = np.where(table().is_id, "id", np.where(table().group == "near", HOSTILE, "far"))
    tables = [
        NamedTable(f"{HOSTILE} {i}", table(shift=2.0 - i / 2, id=ids, group=group), [HOSTILE, "b", "c", "d"])
        for i in range(3)
    ]
    analysis = report(
        tables=tables, title=HOSTILE, bootstrap=5, policy=Policy(tau_id=0.5, tau_ood=0.25, scores={"s_id": HOSTILE})
    )
    path = tmp_path_factory.mktemp("page") / "full.html"
    write_report(analysis, path)
    return path


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(request: pytest.FixtureRequest, browser: Any, full: Path, open_page: Open) -> Iterator[Any]:
    """The full page under both colour schemes, for tests that only look."""
    opened = open_page(browser, full, color_scheme=request.param)
    yield opened
    opened.context.close()


def test_every_figure_is_drawn_and_nothing_complains(seen: Any) -> None:
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("file:", "blob:", "data:"))] == []
    drawn = seen.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".plot")].map((node) => [node.dataset.key, {
            traces: node._fullData.length,
            empty: node._fullData.filter((t) => !((t.x && t.x.length) || (t.z && t.z.length))).map((t) => t.name),
            marks: node.querySelectorAll("svg path").length,
            wide: node.querySelector(".main-svg").getBoundingClientRect().width,
        }]))"""
    )
    assert set(drawn) == EVERYTHING
    for key, figure in drawn.items():
        assert figure["traces"] > 0, key
        assert figure["empty"] == [], key
        assert figure["marks"] > 0, key
        assert figure["wide"] > 300, key


def test_axe_finds_no_serious_fault(seen: Any) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = seen.page
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    found = axe.Axe().run(page).response
    assert len(found["passes"]) > 20
    faults = found["violations"]
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in faults if fault["impact"] in SERIOUS] == []


def test_names_are_shown_and_never_run(seen: Any) -> None:
    page = seen.page
    assert page.evaluate("window.pwned") is None
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.title() == HOSTILE
    assert page.locator(f"th:text-is({json.dumps(f'group: {HOSTILE}')})").count() == 1
    hovered = page.evaluate(
        """() => {
            const node = document.querySelector('.plot[data-key="plane"]');
            Plotly.Fx.hover(node, [{ curveNumber: 0, pointNumber: 0 }]);
            return node.querySelector(".hovertext").textContent;
        }"""
    )
    assert HOSTILE in hovered
    assert page.locator(".plot img").count() == 0


def _expected(table: ScoreTable, tau_id: float, tau_ood: float) -> dict[str, float | None]:
    counts = counts_at(table, tau_id, tau_ood)
    try:
        risk: float | None = counts.risk
    except Undefined:
        risk = None
    return {
        "ta": counts.true_accepts,
        "fa_id": counts.false_accepts_id,
        "fa_ood": counts.false_accepts_ood,
        "fr": counts.false_rejects,
        "accepted": counts.accepted,
        "precision": counts.precision,
        "recall": counts.recall,
        "f1": counts.f1,
        "risk": risk,
        "coverage": counts.coverage,
    }


def _until(page: Any, condition: str) -> None:
    """Wait until an expression is true; Playwright's own way needs eval, which the page forbids."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {condition}")


def _type_tau(page: Any, role: str, value: float) -> None:
    page.fill(f"#tau-{role}", "" if value == OPEN else repr(float(value)))
    page.press(f"#tau-{role}", "Enter")


@pytest.mark.parametrize("weighted", [False, True])
def test_thresholds_recompute_what_the_metrics_say(visit: Open, report: Report, table: Table, weighted: bool) -> None:
    """Ties, open doors, scores that are not finite, thresholds beyond every score."""
    data = table()
    s_id, s_ood = data.s_id.copy(), data.s_ood.copy()
    s_id[::17], s_ood[::23], s_id[5] = np.nan, np.inf, -np.inf
    weight = np.random.default_rng(2).integers(1, 5, 400) / 4 if weighted else None
    data = table(s_id=s_id, s_ood=s_ood, weight=weight)
    policy = Policy(tau_id=None, tau_ood=0.25)
    seen = visit(report(data, policy=policy), NO_FIGURES)
    assert seen.live() == pytest.approx(_expected(data, OPEN, 0.25))
    ties, counts = np.unique(s_id[np.isfinite(s_id)], return_counts=True)
    tied = float(ties[counts.argmax()])
    for tau_id, tau_ood in [(tied, OPEN), (tied + 1e-9, -0.37), (OPEN, OPEN), (0.7, 1.1), (99.0, 0.0), (-1.5, -99.0)]:
        _type_tau(seen.page, "id", tau_id)
        _type_tau(seen.page, "ood", tau_ood)
        assert seen.live() == pytest.approx(_expected(data, tau_id, tau_ood)), (tau_id, tau_ood)
    assert seen.complaints == []


def test_the_keyboard_is_enough(visit: Open, report: Report, table: Table) -> None:
    data = table()
    seen = visit(report(data), NO_FIGURES)
    page = seen.page
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "slide-id":
            break
    else:
        pytest.fail("Tab does not reach the slider")
    before = seen.live()
    for key, moves in (("ArrowRight", 40), ("PageUp", 1), ("Home", 1), ("End", 1), ("ArrowLeft", 15)):
        for _ in range(moves):
            page.keyboard.press(key)
        words = page.input_value("#tau-id")
        tau_id, tau_ood = float(words) if words else OPEN, float(page.input_value("#tau-ood"))
        assert seen.live() == pytest.approx(_expected(data, tau_id, tau_ood)), key
        assert (words == "") == (key == "Home")
    assert seen.live() != before
    assert "% of samples below" in page.get_attribute("#slide-id", "aria-valuetext")
    page.focus("#reset")
    page.keyboard.press("Enter")
    assert seen.live() == before


def test_sliders_move_the_doors_of_the_plane(visit: Open, report: Report, table: Table) -> None:
    seen = visit(report(table(), policy=Policy(tau_id=0.5, tau_ood=0.0)))
    corner = "document.querySelector('.plot[data-key=\"plane\"]')._fullLayout.shapes"
    assert seen.page.evaluate(f"{corner}.map((shape) => shape.visible)") == [True, False, False, True, True]
    _type_tau(seen.page, "id", 1.25)
    _until(seen.page, f"{corner}[0].x0 === 1.25 && {corner}[1].visible")
    _type_tau(seen.page, "id", OPEN)
    _until(seen.page, f"{corner}[0].x0 < 0 && !{corner}[1].visible")


def test_copy_as_policy_is_a_policy(visit: Open, report: Report, table: Table) -> None:
    data = table()
    seen = visit(
        report(data, policy=Policy(tau_id=0.5, tau_ood=0.0, bundle="ab" * 32, scores={"s_id": "msp"})), NO_FIGURES
    )
    page = seen.page
    _type_tau(page, "id", 0.123456789012345)
    _type_tau(page, "ood", OPEN)
    page.click("#copy")
    _until(page, "document.getElementById('copied').textContent !== ''")
    policy = Policy.from_json(page.input_value("#policy-json"))
    assert (policy.tau_id, policy.tau_ood, policy.status) == (0.123456789012345, OPEN, "candidate")
    assert (policy.bundle, policy.scores) == ("ab" * 32, {"s_id": "msp"})
    assert np.count_nonzero(policy.decide(data.s_id, data.s_ood).accept) == seen.live()["accepted"]


def test_words_that_are_no_threshold_change_nothing(visit: Open, report: Report, table: Table) -> None:
    seen = visit(report(table()), NO_FIGURES)
    before = seen.live()
    seen.page.fill("#tau-id", "loud")
    seen.page.press("#tau-id", "Enter")
    assert seen.page.get_attribute("#tau-id", "aria-invalid") == "true"
    assert seen.live() == before


def test_phones_do_not_scroll_sideways(visit: Open, full: Path) -> None:
    page = visit(full, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True).page
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    widths = page.evaluate(
        "[...document.querySelectorAll('.plot .main-svg')].map((n) => n.getBoundingClientRect().width)"
    )
    assert max(widths) <= 390


def test_paper_gets_light_colours_narrow_figures_and_every_table(visit: Open, report: Report, table: Table) -> None:
    page = visit(report(table())).page
    colour = "document.querySelector('.plot')._fullLayout.font.color"
    light = page.evaluate(colour)
    page.click("#theme")
    _until(page, f"{colour} !== {json.dumps(light)}")
    assert page.get_attribute("html", "data-theme") == "dark"
    open_details = "document.querySelectorAll('details[open]').length"
    before = page.evaluate(open_details)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.get_attribute("html", "data-theme") == "light"
    assert page.evaluate("document.querySelector('.plot')._fullLayout.width") <= 700
    assert page.evaluate(open_details) > before
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate(open_details) == before
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_browser_that_cannot_unpack_still_counts(visit: Open, report: Report, table: Table) -> None:
    data = table()
    seen = visit(report(data), NO_FIGURES)
    assert seen.page.get_attribute("html", "data-drawn") == "failed"
    assert "This browser cannot draw the figure" in seen.page.locator(".plot").first.inner_text()
    _type_tau(seen.page, "id", 0.5)
    _type_tau(seen.page, "ood", OPEN)
    assert seen.live() == pytest.approx(_expected(data, 0.5, OPEN))


@pytest.mark.parametrize(
    "columns",
    [
        {"s_id": np.ones(400)},
        {"s_ood": np.ones(400)},
        {"s_id": np.ones(400), "s_ood": np.zeros(400)},
        {"s_id": np.arange(400) % 2},
        {"s_id": 1e300 * np.random.default_rng(0).normal(size=400)},
        {"s_ood": 1e9 + 1e-3 * np.random.default_rng(0).normal(size=400)},
    ],
    ids=["s_id never varies", "s_ood never varies", "neither varies", "two values", "huge", "far from zero"],
)
def test_scores_of_any_kind_are_drawn(
    visit: Open, report: Report, table: Table, columns: dict[str, np.ndarray]
) -> None:
    seen = visit(report(table(**columns)))
    assert seen.complaints == []
    assert seen.page.get_attribute("html", "data-drawn") == "true"
    assert seen.page.locator(".plot.failed").count() == 0


def test_a_figure_that_fails_leaves_the_others_alone(visit: Open, report: Report, table: Table) -> None:
    seen = visit(report(table()), FAIL_SURFACE)
    assert seen.page.get_attribute("html", "data-drawn") == "failed"
    assert seen.page.locator(".plot.failed").count() == 1
    assert "This figure could not be drawn (no map)" in seen.page.locator('.plot[data-key="surface"]').inner_text()
    assert seen.page.locator('.plot[data-key="prevalence"] svg').count() > 0


def test_rare_kinds_of_a_large_table_count_as_rarely_as_they_are(visit: Open, report: Report, table: Table) -> None:
    """40 OOD rows of 41,000 are all on the page, of the others half: what is shown is scaled to the whole."""
    full = table(82_000)
    rows = np.flatnonzero(full.is_id | (np.arange(82_000) >= 82_000 - 40))
    data = full.take(rows)
    seen = visit(report(data, policy=Policy(tau_id=None, tau_ood=None)), NO_FIGURES)
    assert seen.live() == pytest.approx(_expected(data, OPEN, OPEN))
    _type_tau(seen.page, "id", 1.0)
    assert seen.live()["fa_ood"] == _expected(data, 1.0, OPEN)["fa_ood"]
    assert seen.live()["risk"] == pytest.approx(_expected(data, 1.0, OPEN)["risk"], rel=0.1)
    assert "." not in seen.page.locator("#live-ta").inner_text()
