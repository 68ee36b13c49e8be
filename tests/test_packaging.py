"""What is installed from a wheel is enough to serve: the embedded bundle and the page's assets are inside."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names inside a wheel built from a copy, since building writes into the source tree."""
    source = tmp_path_factory.mktemp("source")
    for name in ("service", "models", "calibration"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", "out", "."]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next((source / "out").glob("*.whl"))).namelist()


@pytest.mark.parametrize(
    "name",
    [
        "models/fashion/bundle/manifest.json",
        "models/fashion/bundle/model.onnx",
        "models/fashion/bundle/policies/0001.json",
        "models/fashion/bundle/policies/active",
        "calibration/report/assets/page.js",
        "service/commands/serve.py",
    ],
)
def test_the_wheel_holds_what_serving_needs(wheel: list[str], name: str) -> None:
    assert name in wheel


def test_the_wheel_holds_no_tests(wheel: list[str]) -> None:
    assert [name for name in wheel if name.startswith(("tests/", "benchmarks/"))] == []


def test_every_dependency_of_the_project_is_pinned() -> None:
    """Two installs a year apart give the same versions only if nothing is left open."""
    import re
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    wanted = {re.split(r"[\[<>=;~! ]", line)[0].lower().replace("_", "-") for line in lines}
    pinned = {
        line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().splitlines()
    }
    assert wanted - pinned == set()
