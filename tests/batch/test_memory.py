"""Memory stays where it was put, however much data there is."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from models.bundle import Bundle
from service.batch.errors import JobError
from service.batch.memory import parse_size, say_size

MB = 1_000_000


def _score(bundle: Bundle, data: Path, out: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """The largest RSS seen from outside while a job runs, and its summary."""
    line = [sys.executable, "-c", "from service.cli import main; main()", "score", str(bundle.path), str(data)]
    process = subprocess.Popen([*line, "--out", str(out), "--json", *more], stdout=subprocess.PIPE, text=True)
    watched, most = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            most = max(most, watched.memory_info().rss)
        except psutil.Error:
            break
        time.sleep(0.005)
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return most, json.loads(stdout)


@pytest.fixture(scope="module")
def wide_bundle(tmp_path_factory: pytest.TempPathFactory, make_bundle: Any) -> Bundle:
    made: Bundle = make_bundle(tmp_path_factory.mktemp("bundles") / "wide", shape=(1024,))
    return made


def test_rss_does_not_grow_with_the_data(wide_bundle: Bundle, tmp_path: Path) -> None:
    seen = {}
    for rows in (20_000, 120_000):
        np.save(tmp_path / "x.npy", np.ones((rows, 1024), np.float32))
        options = ("--no-policy", "--batch-size", "256", "--part-rows", "4096")
        seen[rows], summary = _score(wide_bundle, tmp_path / "x.npy", tmp_path / str(rows), *options)
        assert summary["counts"]["rows"] == rows
    assert seen[120_000] - seen[20_000] < 80 * MB  # the data grew by 410 MB


def test_max_memory_holds(wide_bundle: Bundle, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((100_000, 1024), np.float32))
    most, summary = _score(wide_bundle, tmp_path / "x.npy", tmp_path / "out", "--no-policy", "--max-memory", "350MB")
    assert most < 350 * MB
    assert summary["run"]["peak_rss_bytes"] < 350 * MB
    assert summary["counts"]["rows"] == 100_000


@pytest.mark.parametrize(
    ("text", "size"), [("800MB", 800 * MB), ("1.5GiB", 3 << 29), ("2g", 2000 * MB), ("512", 512), ("64 kB", 64_000)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["much", "-5MB", "1TBs", ""])
def test_no_size_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="write it like 800MB"):
        parse_size(text)


def test_sizes_are_said() -> None:
    assert [say_size(n) for n in (12, 1500, 3.2e6, 5e9)] == ["12 B", "1.5 kB", "3.2 MB", "5 GB"]
