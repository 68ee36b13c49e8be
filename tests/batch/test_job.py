"""What a batch job writes: the right rows, in every format, judged by the right policy."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibration.errors import CalibrationError
from calibration.policy import Policy
from calibration.store import PolicyStore
from calibration.table import ScoreTable
from models.bundle import Bundle
from models.data import Columns
from models.errors import ModelsError
from service.batch import Job, JobError, Wishes, run
from service.batch.report import evaluate_output

ReadRows = Callable[[Path], list[dict[str, Any]]]
Vectors = Callable[..., Path]
SMALL = Wishes(batch=8, part_rows=32, workers=2)


def _job(bundle: Bundle, data: object, out: Path, **options: Any) -> Job:
    return Job(bundle.path, str(data), out, **({"wishes": SMALL, "quiet": True} | options))


def _oracle(bundle: Bundle, x: np.ndarray, y: np.ndarray, policy: Policy) -> list[dict[str, Any]]:
    """The rows one by one, from the definitions."""
    scorer = bundle.scorer()
    found = []
    for i in range(len(x)):
        if not np.isfinite(x[i]).all():
            found.append({"id": str(i), "prediction": None, "decision": "reject", "reason": "not_finite"})
            continue
        scored = scorer.score(x[i : i + 1])
        low_id, low_ood = scored.s_id[0] < policy.tau_id, scored.s_ood[0] < policy.tau_ood
        label = int(scored.label[0])
        found.append(
            {
                "id": str(i),
                "prediction": label,
                "class": bundle.manifest.classes[label],
                "decision": "reject" if low_id or low_ood else "accept",
                "reason": {(0, 0): None, (1, 0): "low_id", (0, 1): "low_ood", (1, 1): "low_both"}[low_id, low_ood],
                "policy": "0001",
                "label": int(y[i]),
                "correct": bool(y[i] >= 0 and y[i] == label),
                "is_id": bool(y[i] >= 0),
            }
        )
    return found


def test_rows_are_what_the_definitions_say(bundle: Bundle, vectors: Vectors, tmp_path: Path, rows: ReadRows) -> None:
    data = vectors(100)
    content = dict(np.load(data))
    content["x"][[3, 77], 1] = [np.nan, -np.inf]
    np.savez(data, **content)
    run(_job(bundle, data, tmp_path / "out"))
    written = rows(tmp_path / "out")
    policy = PolicyStore(bundle.policies_dir).get(1)
    expected = _oracle(bundle, content["x"], content["y"], policy)
    assert len({row["reason"] for row in expected}) >= 5
    for row, want in zip(written, expected, strict=True):
        assert {name: row[name] for name in want} == want
    assert list(written[0]) == [
        "id", "prediction", "class", "s_id", "s_ood", "decision", "reason", "policy", "error",
        "label", "correct", "is_id", "group", "note",
    ]  # fmt: skip
    assert [row["note"] for row in written] == list(range(100))
    assert written[3]["s_id"] is None
    assert "not finite" in written[3]["error"]


@pytest.mark.parametrize("out", ["a.parquet", "a.csv", "a.jsonl", "parquet", "csv", "jsonl"])
def test_every_format_holds_the_same_rows(
    out: str, bundle: Bundle, vectors: Vectors, tmp_path: Path, rows: ReadRows
) -> None:
    data = vectors(70)
    run(_job(bundle, data, tmp_path / "reference"))
    kind = None if "." in out else out
    outcome = run(_job(bundle, data, tmp_path / out, format=kind))
    assert outcome.complete
    reference = rows(tmp_path / "reference")
    if out.endswith("csv"):
        tables = [pa.csv.read_csv(path, convert_options=_TEXT) for path in outcome.files]
        assert pa.concat_tables(tables).to_pylist() == reference
    else:
        assert rows(tmp_path / out) == reference
    if kind is None:
        assert {path.name for path in tmp_path.glob("a.*")} == {out, f"{out}.summary.json"}
    else:
        names = {path.name for path in (tmp_path / out).iterdir()}
        parts = {f"part-0000{i}.{kind}" for i in range(3)}
        assert names == parts | {"_manifest.jsonl", "_summary.json"}


_TEXT = pa.csv.ConvertOptions(
    column_types=dict.fromkeys(("id", "policy", "error", "reason"), pa.string()), strings_can_be_null=True
)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_a_labelled_output_is_a_score_table(name: str, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
    data = vectors(60)
    outcome = run(_job(bundle, data, tmp_path / name))
    table = ScoreTable.read(tmp_path / name)
    y = np.load(data)["y"]
    np.testing.assert_array_equal(table.is_id, y >= 0)
    assert table.label is not None
    assert table.group is not None
    np.testing.assert_array_equal(table.label, y)
    np.testing.assert_array_equal(table.group, np.where(y < 0, "far", "known"))
    metrics = evaluate_output(outcome)
    assert metrics["n_id"] == int((y >= 0).sum())
    assert metrics["accuracy"] == pytest.approx(outcome.summary["counts"]["labels"]["correct"] / (y >= 0).sum())


def test_images_become_rows_good_and_bad(image_bundle: Bundle, photos: Path, tmp_path: Path, rows: ReadRows) -> None:
    outcome = run(_job(image_bundle, photos, tmp_path / "out"))
    written = {row["id"]: row for row in rows(tmp_path / "out")}
    assert len(written) == 22
    for name in ("ant/broken.jpg", "bee/text.png"):
        row = written[name]
        assert (row["decision"], row["reason"], row["s_id"], row["class"]) == ("reject", "unreadable", None, None)
        assert row["error"].endswith(".")
        assert (row["is_id"], row["correct"]) == (True, False)
    assert written["zebra/0.png"]["label"] == -1
    assert written["zebra/0.png"]["label_class"] == "zebra"
    assert written["cat/0.png"]["label"] == 2
    counts = outcome.summary["counts"]
    assert counts["errors"] == counts["reasons"]["unreadable"] == 2
    assert counts["unknown_classes"] == {"zebra": 5}
    assert counts["error_samples"][0]["id"] == "ant/broken.jpg"
    assert not (tmp_path / "out" / "_items.arrow").exists()


def test_one_group_for_all_and_all_ood(bundle: Bundle, vectors: Vectors, tmp_path: Path, rows: ReadRows) -> None:
    run(_job(bundle, vectors(20), tmp_path / "out", group="textures", all_ood=True))
    written = rows(tmp_path / "out")
    assert {(row["group"], row["label"], row["is_id"], row["correct"]) for row in written} == {
        ("textures", -1, False, False)
    }


def test_carried_names_never_shadow_our_own(bundle: Bundle, tmp_path: Path, rows: ReadRows) -> None:
    table = pa.table({"x": np.zeros((3, 4)).tolist(), "s_id": [7, 8, 9], "tags": [["a"], [], ["b", "c"]]})
    pq.write_table(table, tmp_path / "d.parquet")
    run(_job(bundle, tmp_path / "d.parquet", tmp_path / "out"))
    assert [(row["input_s_id"], row["tags"]) for row in rows(tmp_path / "out")] == [
        (7, ["a"]),
        (8, []),
        (9, ["b", "c"]),
    ]
    run(_job(bundle, tmp_path / "d.parquet", tmp_path / "out.csv"))
    assert "input_s_id" in (tmp_path / "out.csv").read_text().splitlines()[0]
    pq.write_table(table.append_column("input_s_id", pa.array([1, 2, 3])), tmp_path / "e.parquet")
    run(_job(bundle, tmp_path / "e.parquet", tmp_path / "more"))
    assert [(row["input_input_s_id"], row["input_s_id"]) for row in rows(tmp_path / "more")] == [(7, 1), (8, 2), (9, 3)]


def test_rows_without_label_stay_unjudged_by_truth(bundle: Bundle, tmp_path: Path, rows: ReadRows) -> None:
    table = pa.table({"x": np.ones((3, 4)).tolist(), "label": pa.array(["ant", None, "wolf"])})
    pq.write_table(table, tmp_path / "d.parquet")
    outcome = run(_job(bundle, tmp_path / "d.parquet", tmp_path / "out"))
    assert [(row["label"], row["is_id"]) for row in rows(tmp_path / "out")] == [(0, True), (None, None), (-1, False)]
    metrics = evaluate_output(outcome)
    assert (metrics["n_id"], metrics["n_ood"]) == (1, 1)


class TestPolicies:
    def test_a_number_a_file_and_none(self, bundle: Bundle, vectors: Vectors, tmp_path: Path, rows: ReadRows) -> None:
        data = vectors(30)
        Policy(tau_id=0.0, tau_ood=-100.0).write(tmp_path / "open.json")
        run(_job(bundle, data, tmp_path / "a", policy="1"))
        run(_job(bundle, data, tmp_path / "b", policy=str(tmp_path / "open.json")))
        run(_job(bundle, data, tmp_path / "c", no_policy=True))
        assert {row["policy"] for row in rows(tmp_path / "a")} == {"0001"}
        assert {row["decision"] for row in rows(tmp_path / "b")} == {"accept"}
        assert {(row["decision"], row["reason"], row["policy"]) for row in rows(tmp_path / "c")} == {(None, None, None)}

    def test_without_an_active_policy_nothing_is_decided(
        self, bundle: Bundle, vectors: Vectors, tmp_path: Path
    ) -> None:
        with pytest.raises(JobError, match=r"no active policy.*--no-policy"):
            run(_job(bundle, vectors(5), tmp_path / "out", store=tmp_path / "empty"))
        assert not (tmp_path / "out").exists()

    def test_another_bundles_policy_is_refused(self, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
        Policy(tau_id=0.0, tau_ood=0.0, bundle="0" * 64).write(tmp_path / "other.json")
        with pytest.raises(CalibrationError, match="made for bundle"):
            run(_job(bundle, vectors(5), tmp_path / "out", policy=str(tmp_path / "other.json")))

    def test_bad_items_are_rejected_even_without_a_policy(
        self, image_bundle: Bundle, photos: Path, tmp_path: Path, rows: ReadRows
    ) -> None:
        run(_job(image_bundle, photos, tmp_path / "out", no_policy=True))
        judged = [row["reason"] for row in rows(tmp_path / "out") if row["decision"] is not None]
        assert judged == ["unreadable", "unreadable"]


class TestOutputs:
    def test_strange_files_are_left_alone(self, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "thesis.txt").write_text("years of work")
        for overwrite in (False, True):
            with pytest.raises(JobError, match=r"holds other files \(thesis.txt\)"):
                run(_job(bundle, vectors(5), tmp_path / "out", overwrite=overwrite))
        (tmp_path / "a.parquet").write_text("mine")
        with pytest.raises(JobError, match="exists and is no result of this job; give --overwrite"):
            run(_job(bundle, vectors(5), tmp_path / "a.parquet"))
        assert (tmp_path / "a.parquet").read_text() == "mine"
        assert not (tmp_path / "a.parquet.parts").exists()
        assert run(_job(bundle, vectors(5), tmp_path / "a.parquet", overwrite=True)).complete

    def test_a_changed_table_is_not_taken_for_the_result(
        self, bundle: Bundle, vectors: Vectors, tmp_path: Path
    ) -> None:
        job = _job(bundle, vectors(40), tmp_path / "a.csv")
        run(job)
        assert run(job).already
        (tmp_path / "a.csv").write_text((tmp_path / "a.csv").read_text() + "\n")
        with pytest.raises(JobError, match="is no result of this job"):
            run(job)

    @pytest.mark.parametrize(
        ("out", "options", "sentence"),
        [
            ("no/where/a.csv", {}, "does not exist; make it first"),
            ("a.csv", {"format": "parquet"}, "ends in .csv, but --format parquet"),
            ("out", {"wishes": Wishes(batch=8, part_rows=20)}, "--part-rows 20 is no multiple of the batch size 8"),
            ("out", {"wishes": Wishes(max_memory=1 << 20)}, r"--max-memory 1.05 MB is too little"),
            ("data.npz", {}, "is a file; --out takes a folder"),
            ("a.json", {}, "ends in .json; a file must end in .parquet, .csv or .jsonl"),
            ("a.csv", {"evaluate": True, "columns": Columns(labels=False)}, "has no labels, so nothing can be eval"),
        ],
    )
    def test_refusals_leave_nothing_behind(
        self, out: str, options: dict[str, Any], sentence: str, bundle: Bundle, vectors: Vectors, tmp_path: Path
    ) -> None:
        data = vectors(40)
        before = sorted(path.name for path in tmp_path.iterdir())
        with pytest.raises(JobError, match=sentence):
            run(_job(bundle, data, tmp_path / out, **options))
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    @pytest.mark.parametrize("kind", ["table", "link", "list", "earlier output"])
    def test_what_is_read_is_never_overwritten(
        self, kind: str, bundle: Bundle, vectors: Vectors, tmp_path: Path
    ) -> None:
        table = pa.table({"x": np.zeros((3, 4)).tolist()})
        data = out = tmp_path / "a.parquet"
        if kind in ("table", "link"):
            pq.write_table(table, data)
            if kind == "link":
                out = tmp_path / "b.parquet"
                out.symlink_to(data)
        elif kind == "list":
            np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
            data = out = tmp_path / "a.csv"
            data.write_text("path\nx.npy\n")
        else:
            pq.write_table(table, tmp_path / "in.parquet")
            data = out = tmp_path / "out"
            run(_job(bundle, tmp_path / "in.parquet", out))
            table = pq.read_table(out / "part-00000.parquet").append_column("x", table["x"])
            pq.write_table(table, out / "part-00000.parquet")
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        with pytest.raises(JobError, match="is both input and output; choose another --out"):
            run(_job(bundle, data, out, overwrite=True, columns=Columns(carry=())))
        assert {path: path.read_bytes() for path in before} == before

    def test_no_rows_is_said(self, bundle: Bundle, tmp_path: Path) -> None:
        np.save(tmp_path / "none.npy", np.zeros((0, 4), np.float32))
        with pytest.raises(ModelsError, match="holds no rows"):
            run(_job(bundle, tmp_path / "none.npy", tmp_path / "out"))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(n=st.integers(1, 90), batch=st.integers(1, 17), times=st.integers(1, 4), workers=st.integers(1, 3))
def test_the_cut_never_changes_the_rows(
    n: int,
    batch: int,
    times: int,
    workers: int,
    bundle: Bundle,
    vectors: Vectors,
    tmp_path_factory: pytest.TempPathFactory,
    rows: ReadRows,
) -> None:
    """Labels, decisions and ids are those of one big batch; scores agree to the last digits of float32."""
    folder = tmp_path_factory.mktemp("cut")
    data = vectors(n)
    run(_job(bundle, data, folder / "one", wishes=Wishes(batch=n, part_rows=n, workers=1)))
    run(_job(bundle, data, folder / "cut", wishes=Wishes(batch=batch, part_rows=batch * times, workers=workers)))
    for a, b in zip(rows(folder / "one"), rows(folder / "cut"), strict=True):
        assert a.pop("s_id") == pytest.approx(b.pop("s_id"), rel=1e-6)
        assert a.pop("s_ood") == pytest.approx(b.pop("s_ood"), rel=1e-5, abs=1e-6)
        assert a == b


class TestCommand:
    def _airlock(self, *arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-c", "from service.cli import main; main()", "score", *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, check=False, **options)

    def test_a_run_says_what_it_did(self, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
        done = self._airlock(bundle.path, vectors(200), "--out", tmp_path / "a.parquet", "--evaluate")
        assert done.returncode == 0, done.stderr
        assert "scored 200 rows" in done.stdout
        assert "(policy 0001)" in done.stdout
        assert "DS-F1" in done.stdout
        assert "200 of 200 scored (100 %)" in done.stderr

    def test_json_is_one_document_and_quiet_is_silent(self, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
        data = vectors(50)
        done = self._airlock(bundle.path, data, "--out", tmp_path / "a", "--json", "--evaluate")
        document = json.loads(done.stdout)
        assert (document["status"], document["counts"]["rows"]) == ("complete", 50)
        assert document["metrics"]["n_id"] + document["metrics"]["n_ood"] == 50
        assert document["run"]["rows_per_second"] > 0
        assert done.stderr == ""
        done = self._airlock(bundle.path, data, "--out", tmp_path / "b", "--quiet")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_a_list_on_standard_input(self, image_bundle: Bundle, photos: Path, tmp_path: Path) -> None:
        names = "\n".join(str(path) for path in sorted(photos.glob("cat/*.png")))
        done = self._airlock(image_bundle.path, "-", "--out", tmp_path / "a.csv", "--no-policy", input=names)
        assert done.returncode == 0, done.stderr
        assert len((tmp_path / "a.csv").read_text().splitlines()) == 6

    def test_refusals_have_a_sentence_and_a_code(self, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
        done = self._airlock(bundle.path, tmp_path / "nothing.npz", "--out", tmp_path / "a")
        assert done.returncode == 1
        assert done.stderr == f"airlock: {tmp_path / 'nothing.npz'} does not exist.\n"
        done = self._airlock(bundle.path, vectors(5), "--out", tmp_path / "a", "--policy", "1", "--no-policy")
        assert done.returncode == 2
        assert "exclude each other" in done.stderr


FASHION = Path(__file__).parents[2] / "models" / "fashion"


@pytest.mark.skipif(not (FASHION / "bundle").is_dir(), reason="the embedded bundle is not there")
def test_the_embedded_bundle_on_its_samples(tmp_path: Path) -> None:
    """Every row has the scores and the verdict that the bundle gives to the image on its own."""
    bundle = Bundle.open(FASHION / "bundle")
    policy = PolicyStore(bundle.policies_dir, bundle.hash).active()
    assert policy is not None
    run(_job(bundle, FASHION / "samples" / "demo" / "*.npz", tmp_path / "demo.parquet"))
    table = pq.read_table(tmp_path / "demo.parquet")
    samples = [np.load(path) for path in sorted((FASHION / "samples" / "demo").glob("*.npz"))]
    scored = bundle.scorer().score(np.concatenate([sample["x"] for sample in samples]))
    decided = policy.decide(scored.s_id, scored.s_ood, scored.finite, scored.label)
    np.testing.assert_allclose(table["s_id"].to_numpy(), scored.s_id, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(table["s_ood"].to_numpy(), scored.s_ood, rtol=1e-4, atol=1e-4)
    assert table["id"].to_pylist() == [name for sample in samples for name in sample["id"].tolist()]
    near = np.minimum(abs(scored.s_id - policy.tau_id), abs(scored.s_ood - policy.tau_ood)) < 1e-3
    for found, expected, close in zip(table["reason"].to_pylist(), decided.reasons, near, strict=True):
        assert close or found == expected
