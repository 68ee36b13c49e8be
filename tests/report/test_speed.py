"""A table of 100,000 rows: rendered in less than 10 s, opened in less than 3 s."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.table import ScoreTable

ROWS = 100_000


@pytest.mark.slow
def test_large_tables_are_quick(table: Callable[..., ScoreTable], browser: Any, open_page: Any, tmp_path: Path) -> None:
    apart = np.random.default_rng(1).random((2, ROWS)) / 100.0
    made = table(ROWS)
    data = table(ROWS, s_id=made.s_id + apart[0], s_ood=made.s_ood + apart[1]).write(tmp_path / "large.parquet")
    page = tmp_path / "report.html"
    words = [sys.executable, "-c", "from service.cli import main; main()", "report", str(data), "--out", str(page)]
    start = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    rendered = time.perf_counter() - start
    visit = open_page(browser, page)
    drawn = visit.page.evaluate("performance.getEntriesByName('drawn')[0].startTime") / 1000
    visit.context.close()
    print(f"{ROWS:,} rows: rendered in {rendered:.1f} s, {page.stat().st_size / 1e6:.1f} MB, drawn in {drawn:.1f} s")
    assert page.stat().st_size < 6_000_000
    assert rendered < 10.0
    assert drawn < 3.0
