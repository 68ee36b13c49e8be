"""The README's session works when pasted."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _block(holding: str) -> str:
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    found: list[str] = [block for block in blocks if holding in block]
    assert len(found) == 1
    return found[0]


def test_the_offline_session_runs_as_it_stands(tmp_path: Path) -> None:
    session = _block("airlock score bundle").replace("/tmp/", f"{tmp_path}/")
    session = session.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", session], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "DS-F1" in done.stdout
    assert (tmp_path / "policies" / "0001.json").is_file()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
