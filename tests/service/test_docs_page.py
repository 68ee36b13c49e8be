"""The page at /docs in a real browser: it shows every route, lets one be tried, and breaks none of its own rules."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from support.server import Server

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (Debian: apt install chromium)")


@pytest.fixture(scope="module")
def page(server: Server) -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900})
        page.complaints = []
        page.on("console", lambda message: message.type == "error" and page.complaints.append(message.text))
        page.on("pageerror", lambda fault: page.complaints.append(str(fault)))
        page.on("request", lambda request: request.url.startswith(server.url) or page.complaints.append(request.url))
        page.goto(f"{server.url}/docs")
        page.wait_for_selector("details")
        yield page
        browser.close()


def test_every_route_is_shown_and_nothing_is_fetched_from_elsewhere(page: Any, server: Server) -> None:
    described = page.evaluate("fetch('./docs.json').then(r => r.json())")["paths"]
    assert page.locator("details").count() == sum(len(methods) for methods in described.values())
    assert not page.complaints


def test_a_request_can_be_tried(page: Any) -> None:
    route = page.locator("details", has_text="/v1/classify").first
    route.locator("summary").click()
    route.get_by_role("button", name="Send").click()
    route.locator("pre", has_text="predictions").wait_for()
    assert route.locator("pre").inner_text().startswith("200")
    assert not page.complaints


def test_the_page_is_accessible(page: Any) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
