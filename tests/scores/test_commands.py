"""`airlock scores` and `airlock compare` as a user runs them."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from models.bundle import Bundle
from models.fashion import bundle_path, classifier_path, samples_path
from models.scores import registry
from service.commands.compare import command as compare
from service.commands.scores import command as scores


def run(command, *args):
    return CliRunner().invoke(command, [str(arg) for arg in args])


def test_scores_lists_needs_parameters_ranges_papers_and_cost():
    text = run(scores).output
    for id in registry():
        assert f"\n{id}: " in f"\n{text}"
    assert "k = 50  [integer ≥ 1]" in text
    assert "for s_ood, cost low, needs logits, features, head, fit" in text
    assert "(Wang et al. 2022)" in text
    assert "+temperature" in text


def test_scores_tells_one_in_detail_and_refuses_another():
    text = run(scores, "knn").output
    assert "Sun et al. 2022, Out-of-Distribution Detection with Deep Nearest Neighbors" in text
    assert "ranking only, because" in text
    assert "tuned over 1, 5, 10" in text
    assert "mode = global" in run(scores, "project").output
    assert "did you mean knn" in str(run(scores, "knm").exception)


def test_scores_as_json():
    document = json.loads(run(scores, "--json").output)
    assert [entry["id"] for entry in document["scores"]] == list(registry())
    knn = next(entry for entry in document["scores"] if entry["id"] == "knn")
    assert knn["needs"] == ["features", "fit"]
    assert knn["parameters"][0]["default"] == 50
    assert json.loads(run(scores, "vim", "--json").output)["id"] == "vim"


THEIR_SCORE = """
from models.scores import Score
from models.scores.base import require

class Loudest(Score):
    id, title, paper, cost = "loudest", "largest feature", "nobody", "low"
    needs = require("features")

    def formula(self, xp, x, theta, params):
        return xp.max(x.h)
"""


def test_a_score_of_an_installed_package_is_listed(tmp_path):
    (tmp_path / "their_package.py").write_text(THEIR_SCORE)
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[airlock.scores]\nloudest = their_package:Loudest\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = "import sys; sys.argv = ['airlock', 'scores', 'loudest']; from service.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("loudest: largest feature"), done.stderr


@pytest.fixture
def arguments(tmp_path):
    """Some of the embedded samples."""
    for split, name, rows in (("fit", "id", 600), ("test", "id", 500), ("test", "near", 200), ("test", "far", 200)):
        sample = np.load(samples_path(split) / f"{name}.npz")
        np.savez(tmp_path / f"{split}_{name}.npz", x=sample["x"][:rows], y=sample["y"][:rows])
    return [
        bundle_path(),
        *("--id", tmp_path / "test_id.npz"),
        *("--ood", f"near={tmp_path / 'test_near.npz'}", "--ood", f"far={tmp_path / 'test_far.npz'}"),
    ]


def test_compare_prints_and_writes_the_table(arguments, tmp_path):
    out = tmp_path / "table.csv"
    fit = ("--fit", tmp_path / "fit_id.npz")
    result = run(compare, *arguments, *fit, "--scores", "msp,energy,vim,knn,mahalanobis", "--out", out)
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(out.open()))
    assert [(row["score"], row["group"]) for row in rows[:2]] == [("msp", "near"), ("msp", "far")]
    assert len(rows) == 10
    for row in rows:
        assert float(row["ds_f1"]) >= float(row["f1"]) - 1e-12, "a second door never lowers the best F1"
        assert 0 <= float(row["fpr95"]) <= 1
        assert float(row["cost_us"]) > 0
    assert "near: 500 ID rows" in result.output
    assert "Recommended: --s-id msp --s-ood" in result.output
    recommended = result.output.split("--s-ood ")[1].split()[0]
    assert f"* {recommended}" in result.output


def test_compare_without_fit_data_says_what_it_did(arguments):
    result = run(compare, *arguments, "--scores", "msp,energy", "--json")
    document = json.loads(result.output)
    assert "half of --id" in document["note"]
    assert document["n_id"] == 250
    assert document["groups"] == {"near": 200, "far": 200}
    assert {line["score"] for line in document["lines"]} == {"msp", "energy"}
    assert document["recommendation"]["reason"]


def test_compare_of_a_bare_model_is_that_of_its_bundle(arguments):
    bundled = json.loads(run(compare, *arguments, "--scores", "msp,vim", "--json").output)
    image = Bundle.open(bundle_path()).manifest.input.model_dump_json()
    bare = [classifier_path(), *arguments[1:], "--image", image]
    result = json.loads(run(compare, *bare, "--scores", "msp,vim", "--json").output)
    for ours, theirs in zip(result["lines"], bundled["lines"], strict=True):
        assert ours["ds_f1"] == pytest.approx(theirs["ds_f1"], abs=1e-6)
        assert ours["auroc"] == pytest.approx(theirs["auroc"], abs=1e-6)


def test_compare_takes_the_named_output_of_a_bare_model(arguments):
    image = Bundle.open(bundle_path()).manifest.input.model_dump_json()
    bare = [classifier_path(), *arguments[1:], "--image", image, "--scores", "msp"]
    assert run(compare, *bare, "--output", "logits").exit_code == 0
    assert "The model has no output 'nope'" in str(run(compare, *bare, "--output", "nope").exception)


def test_compare_leaves_out_what_cannot_be_fitted(arguments, tmp_path):
    sample = np.load(tmp_path / "fit_id.npz")
    np.savez(tmp_path / "few.npz", x=sample["x"][:40], y=sample["y"][:40])
    result = run(compare, *arguments, "--fit", tmp_path / "few.npz", "--scores", "msp,knn")
    assert "knn was left out: knn's parameter k must be at most 40" in result.output
    alone = run(compare, *arguments, "--fit", tmp_path / "few.npz", "--scores", "knn")
    assert str(alone.exception).startswith("None of the scores could be fitted: knn's parameter k")


def test_compare_lists_a_score_once(arguments):
    document = json.loads(run(compare, *arguments, "--scores", "energy,energy", "--json").output)
    assert [(line["score"], line["group"]) for line in document["lines"]] == [("energy", "near"), ("energy", "far")]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--scores", "knm"], "did you mean knn"),
        (["--scores", " , "], "--scores names no score"),
        (["--scores", "knn:k=900"], "There is no score 'knn:k=900'"),
        (["--ood", "=outliers.npz"], "GROUP=DATA, not '=outliers.npz'"),
        (["--out", "table.txt"], "takes a .csv or a .json file"),
        (["--fit", "missing.npz"], "does not exist"),
    ],
)
def test_compare_refuses(arguments, extra, message):
    result = run(compare, *arguments, *extra)
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_compare_refuses_outliers_among_in_distribution_data(arguments, tmp_path):
    sample = np.load(tmp_path / "test_near.npz")
    np.savez(tmp_path / "mixed.npz", x=sample["x"], y=sample["y"])
    arguments[2] = tmp_path / "mixed.npz"
    assert "move the others to --ood" in str(run(compare, *arguments).exception)
