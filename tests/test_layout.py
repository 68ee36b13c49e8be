"""The house rules that hold the rooms apart, read from the import statements themselves."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FORBIDDEN = {
    "models": {"calibration", "service", "bentoml"},
    "calibration": {"models", "service", "onnx", "onnxruntime", "torch", "bentoml"},
    "service": {"torch"},
}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_import_in_one_direction(room: str) -> None:
    crossings = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for name in _imports(path)
        if name in FORBIDDEN[room]
    ]
    assert crossings == []


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("service.cli", {"numba", "onnxruntime", "bentoml", "plotly", "pyarrow", "scipy", "torch"}),
        ("service.app", {"torch"}),
        ("models.bundle, models.build, models.classifier, models.data", {"torch", "bentoml", "calibration"}),
        ("calibration.metrics, calibration.select, calibration.store", {"onnxruntime", "onnx", "torch", "models"}),
    ],
)
def test_importing_a_room_does_not_pull_in_another(modules: str, absent: set[str]) -> None:
    code = f"import sys, {modules}; print(*(m for m in {sorted(absent)!r} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
