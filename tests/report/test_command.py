"""`airlock report` as a user types it, and the example that `make report` writes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner

from calibration.metrics import counts_at
from calibration.policy import Policy
from calibration.table import ScoreTable
from service.commands.report import command

Table = Callable[..., ScoreTable]
SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


@pytest.fixture
def scores(table: Table, tmp_path: Path) -> Path:
    """A table on disk."""
    return table().write(tmp_path / "scores.parquet")


def _airlock(*words: object) -> subprocess.CompletedProcess[str]:
    code = "from service.cli import main; main()"
    done = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(done, capture_output=True, text=True, check=False)


def test_page_and_document(scores: Path, table: Table, tmp_path: Path) -> None:
    policy = tmp_path / "0007.json"
    Policy(tau_id=0.5, tau_ood=0.0, number=7).write(policy)
    page, document = tmp_path / "report.html", tmp_path / "report.json"
    other = table(shift=1.0).write(tmp_path / "other.csv")
    done = _airlock("report", scores, other, "--policy", policy, "--out", page, "--json", document, "--bootstrap", 3)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Policy 0007 accepts")
    assert "<!doctype html>" in page.read_text()[:100]
    written = json.loads(document.read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(written)
    assert written["decisions"]["all"]["f1"] == counts_at(table(), 0.5, 0.0).f1
    assert written["policy"]["source"] == "0007.json"
    assert [row["name"] for row in written["comparison"]["methods"]] == ["scores", "other"]
    assert written["metrics"]["bootstrap"]["replicates"] == 3
    assert f"report {scores}" in written["provenance"]["command"]
    assert written["provenance"]["tables"][0]["fingerprint"] == table().fingerprint()


def test_the_schema_in_the_documentation_is_the_one_in_use() -> None:
    done = CliRunner().invoke(command, ["--schema"])
    assert done.exit_code == 0
    assert done.output == SCHEMA.read_text()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["{scores}"], 2, "Name the page with --out, the JSON document with --json, or both."),
        ([], 2, "Missing argument"),
        (["{tmp}/none.parquet", "--out", "{tmp}/x.html"], 1, "airlock: There is no score table at"),
        (["{scores}", "--out", "{tmp}/no/such/x.html"], 1, "no/such does not exist; make it first or write elsewhere."),
        (["{scores}", "--policy", "{tmp}/p.json", "--out", "{tmp}/x.html"], 1, "airlock: cannot read the policy"),
        (["{scores}", "--policy", "{scores}", "--out", "{tmp}/x.html"], 1, "is not a valid policy"),
        (["{tmp}/bad.csv", "--out", "{tmp}/x.html"], 1, "column 's_ood' is missing"),
    ],
)
def test_refusals_are_one_sentence_and_write_nothing(
    scores: Path, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    (tmp_path / "bad.csv").write_text("s_id,is_id\n1,1\n")
    done = _airlock("report", *(word.format(scores=scores, tmp=tmp_path) for word in words))
    assert done.returncode == code
    assert says in done.stderr
    assert code == 2 or len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*.html"))


def test_the_example_is_the_embedded_default_on_samples_it_has_not_seen(tmp_path: Path) -> None:
    from models.bundle import Bundle
    from models.fashion import bundle_path
    from service.example_report import command as example

    page, document = tmp_path / "report.html", tmp_path / "report.json"
    done = CliRunner().invoke(example, ["--out", str(page), "--json", str(document), "--bootstrap", "0"])
    assert done.exit_code == 0, done.output
    written = json.loads(document.read_text())
    assert written["table"]["groups"] == {"far": 1500, "id": 3000, "near": 1500}
    assert written["policy"]["bundle"] == Bundle.open(bundle_path()).hash
    assert {row["name"] for row in written["per_class"]} <= set(Bundle.open(bundle_path()).manifest.classes)
    assert written["decisions"]["all"]["risk"]["value"] < 0.05
    assert written["notes"] == []
    assert page.stat().st_size < 6_000_000
