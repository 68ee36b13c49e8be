"""Tables that look like life, pages made of them, and one Chromium for all tests of a worker."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.policy import Policy
from calibration.report import Analysis, NamedTable, Request, analyse, write_report
from calibration.table import ScoreTable

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def _columns(n: int, seed: int, shift: float) -> dict[str, Any]:
    """Half ID, half OOD in a near and a far group; rounded scores, so that there are ties."""
    rng = np.random.default_rng(seed)
    is_id = np.arange(n) < n // 2
    correct = is_id & (rng.random(n) < 0.85)
    prediction = rng.integers(0, 4, n)
    group = np.where(is_id, "id", np.where(rng.random(n) < 0.5, "near", "far"))
    s_id = np.round(rng.normal(size=n) + 2.0 * correct + 0.4 * is_id, 2)
    s_ood = np.round(rng.normal(size=n) + shift * is_id - 1.5 * (group == "far"), 2)
    sure = 1.0 / (1.0 + np.exp(-s_id))
    probabilities = np.repeat(((1.0 - sure) / 3)[:, None], 4, axis=1)
    probabilities[np.arange(n), prediction] = sure
    return {
        "s_id": s_id,
        "s_ood": s_ood,
        "is_id": is_id,
        "correct": correct,
        "prediction": prediction,
        "label": np.where(is_id, np.where(correct, prediction, (prediction + 1) % 4), -1),
        "group": group,
        "id": np.array([f"sample-{i}" for i in range(n)]),
        "probabilities": probabilities,
    }


def _table(n: int = 400, seed: int = 0, shift: float = 2.0, **changes: Any) -> ScoreTable:
    return ScoreTable.from_columns(**(_columns(n, seed, shift) | changes))


def _report(*tables: ScoreTable, policy: Policy | None = None, **changes: Any) -> Analysis:
    named = [NamedTable(f"table {i}", each) for i, each in enumerate(tables)]
    request = {"tables": named, "policy": policy, "bootstrap": 0} | changes
    return analyse(Request(**request))


@pytest.fixture(scope="session")
def table() -> Callable[..., ScoreTable]:
    """A table of n rows; a column that is given replaces the made one, and None leaves it out."""
    return _table


@pytest.fixture(scope="session")
def report() -> Callable[..., Analysis]:
    """The analysis of some tables, without resamples unless they are asked for."""
    return _report


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real headless Chromium; of one file only, since its event loop would be in the way of other tests' loops."""
    if not CHROMIUM.exists():
        pytest.skip(f"no Chromium at {CHROMIUM}; apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield found
        found.close()


class Visit:
    """A page that was opened from disk without a network, and what it complained about."""

    def __init__(self, browser: Any, path: Path, script: str = "", **context: Any) -> None:
        self.context = browser.new_context(offline=True, **({"viewport": {"width": 1180, "height": 900}} | context))
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        if script:
            self.page.add_init_script(script)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached", timeout=60_000)

    def live(self) -> dict[str, float | None]:
        """The numbers under the sliders, unrounded."""
        keys = ["ta", "fa_id", "fa_ood", "fr", "accepted", "precision", "recall", "f1", "risk", "coverage"]
        found = {key: self.page.locator(f"#live-{key}").get_attribute("data-value") for key in keys}
        return {key: float(value) if value else None for key, value in found.items()}


@pytest.fixture(scope="session")
def open_page() -> type[Visit]:
    """Open a page in a browser; who opens it closes its context."""
    return Visit


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    """Write an analysis as a page and open it."""
    opened = []

    def written(analysis: Analysis | Path, script: str = "", **context: Any) -> Visit:
        path = tmp_path / "report.html"
        if isinstance(analysis, Path):
            path = analysis
        else:
            write_report(analysis, path)
        opened.append(Visit(browser, path, script, **context))
        return opened[-1]

    yield written
    for each in opened:
        each.context.close()
