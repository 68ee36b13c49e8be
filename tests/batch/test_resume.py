"""Stopping and going on: whatever ends a run, the next one ends with the same result."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.bundle import Bundle
from service.batch import Job, JobError, Wishes, run

Vectors = Callable[..., Path]
SMALL = Wishes(batch=8, part_rows=16, workers=2)


def _job(bundle: Bundle, data: object, out: Path, **options: Any) -> Job:
    return Job(bundle.path, str(data), out, **({"wishes": SMALL, "quiet": True} | options))


def _parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def _manifest(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "_manifest.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.data())
def test_any_subset_of_parts_is_completed_byte_for_byte(
    kind: str, damage: st.DataObject, bundle: Bundle, vectors: Vectors, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("resume")
    job = _job(bundle, vectors(100), folder / "out", format=kind)
    whole = run(job)
    expected, counts = _parts(folder / "out"), whole.summary["counts"]
    records = _manifest(folder / "out")
    kept = damage.draw(st.lists(st.sampled_from(records[1:]), unique_by=lambda r: r["index"]))
    lines = [json.dumps(record) for record in [records[0], *kept]]
    torn = damage.draw(st.sampled_from(["", '{"record": "part", "ind']))
    (folder / "out" / "_manifest.jsonl").write_text("\n".join(lines) + "\n" + torn)
    (folder / "out" / "_summary.json").unlink()
    for record in records[1:]:
        if damage.draw(st.booleans()) and record not in kept:
            (folder / "out" / record["file"]).write_bytes(b"half a part")
    (folder / "out" / ".part-00001.csv.99.tmp").write_bytes(b"left by a killed run")
    again = run(job)
    assert _parts(folder / "out") == expected
    assert again.summary["counts"] == counts
    assert again.summary["run"]["resumed_parts"] == len(kept)
    assert not list((folder / "out").glob(".*.tmp"))


def test_a_lost_part_is_done_again(bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
    job = _job(bundle, vectors(64), tmp_path / "out")
    run(job)
    expected = _parts(tmp_path / "out")
    (tmp_path / "out" / "part-00002.parquet").unlink()
    assert run(job).summary["run"]["rows"] == 16
    assert _parts(tmp_path / "out") == expected


class TestAnotherJob:
    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"no_policy": True}, "policy"),
            ({"group": "g"}, "group"),
            ({"all_ood": True}, "choice of --ood"),
            ({"format": "csv"}, "format"),
            ({"wishes": Wishes(batch=4)}, "batch size"),
            ({"wishes": Wishes(part_rows=64)}, "part size"),
        ],
    )
    def test_is_refused_by_name(
        self, change: dict[str, Any], named: str, bundle: Bundle, vectors: Vectors, tmp_path: Path
    ) -> None:
        data = vectors(40)
        run(_job(bundle, data, tmp_path / "out"))
        before = _parts(tmp_path / "out")
        with pytest.raises(JobError, match=rf"was begun with another {named}; give --overwrite"):
            run(_job(bundle, data, tmp_path / "out", **change))
        assert _parts(tmp_path / "out") == before

    def test_changed_input_is_refused_and_overwritten_on_demand(
        self, bundle: Bundle, vectors: Vectors, tmp_path: Path
    ) -> None:
        run(_job(bundle, vectors(100), tmp_path / "out"))
        data = vectors(40, seed=1)
        with pytest.raises(JobError, match="another input, or its files have changed"):
            run(_job(bundle, data, tmp_path / "out"))
        assert run(_job(bundle, data, tmp_path / "out", overwrite=True)).summary["counts"]["rows"] == 40
        assert len(_parts(tmp_path / "out")) == 3

    def test_a_damaged_manifest_is_said(self, bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
        job = _job(bundle, vectors(40), tmp_path / "out")
        run(job)
        (tmp_path / "out" / "_manifest.jsonl").write_text("nonsense\n")
        with pytest.raises(JobError, match=r"_manifest.jsonl is damaged; start over with --overwrite"):
            run(job)


class TestErrors:
    def _data(self, path: Path, bad: int) -> Path:
        x = np.zeros((160, 4)).tolist()
        for i in range(bad):
            x[30 + i] = [float("nan")] * 4
        pq.write_table(pa.table({"x": x}), path)
        return path

    def test_too_many_stop_the_job_and_keep_what_is_done(self, bundle: Bundle, tmp_path: Path) -> None:
        data = self._data(tmp_path / "d.parquet", 20)
        outcome = run(_job(bundle, data, tmp_path / "out", max_errors=10))
        assert outcome.summary["status"] == "too_many_errors"
        assert 10 < outcome.summary["counts"]["errors"] <= 20
        done = len(_parts(tmp_path / "out"))
        assert 1 < done < 10
        more = run(_job(bundle, data, tmp_path / "out", max_errors=20))
        assert more.complete
        assert more.summary["run"]["resumed_parts"] == done
        assert more.summary["counts"]["reasons"]["not_finite"] == 20

    def test_as_many_as_allowed_do_not(self, bundle: Bundle, tmp_path: Path) -> None:
        data = self._data(tmp_path / "d.parquet", 20)
        assert run(_job(bundle, data, tmp_path / "out", max_errors=20)).complete

    def test_the_command_says_so(self, bundle: Bundle, tmp_path: Path) -> None:
        data = self._data(tmp_path / "d.parquet", 3)
        process = _start(bundle, data, tmp_path / "out", "--max-errors", "0")
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "3 items have an error, more than --max-errors 0 (first: 30: The item holds a value" in stderr
        assert "raise --max-errors to go on" in stderr


def _start(bundle: Bundle, data: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    line = [sys.executable, "-c", "from service.cli import main; main()", "score", str(bundle.path), str(data)]
    line += ["--out", str(out), "--batch-size", "16", "--part-rows", "64", "--workers", "1", *more]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _wait_for_parts(folder: Path, count: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "_manifest.jsonl").exists() and len(_manifest_lines(folder)) > count:
            return
        time.sleep(0.01)
    raise AssertionError(f"the run never finished {count} parts: {process.communicate()}")


def _manifest_lines(folder: Path) -> list[str]:
    return (folder / "_manifest.jsonl").read_text().splitlines()


def _promised(folder: Path) -> int:
    """The parts the manifest names in whole lines: it comes before a part's rename, so it is what counts as done."""
    text = (folder / "_manifest.jsonl").read_text()
    return text.count("\n") - 1


@pytest.fixture(scope="module")
def uninterrupted(slow_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Data, and the parts of a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    x = np.random.default_rng(5).normal(size=(1500, 4)).astype(np.float32)
    np.save(folder / "x.npy", x)
    process = _start(slow_bundle, folder / "x.npy", folder / "out")
    assert process.wait(60) == 0
    return folder / "x.npy", folder / "out"


class TestSignals:
    def test_kill_dash_nine_costs_at_most_one_part(
        self, slow_bundle: Bundle, uninterrupted: tuple[Path, Path], tmp_path: Path
    ) -> None:
        data, reference = uninterrupted
        killed = _start(slow_bundle, data, tmp_path / "out")
        _wait_for_parts(tmp_path / "out", 3, killed)
        os.kill(killed.pid, signal.SIGKILL)
        assert killed.wait(10) == -signal.SIGKILL
        finished = _promised(tmp_path / "out")
        assert 3 <= finished < len(_parts(reference))
        process = _start(slow_bundle, data, tmp_path / "out", "--json")
        document = json.loads(process.communicate(timeout=60)[0])
        assert document["run"]["resumed_parts"] == finished
        assert _parts(tmp_path / "out") == _parts(reference)

    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
    def test_a_polite_signal_finishes_the_part_and_says_how_to_go_on(
        self, signum: signal.Signals, slow_bundle: Bundle, uninterrupted: tuple[Path, Path], tmp_path: Path
    ) -> None:
        data, reference = uninterrupted
        out = tmp_path / "table.parquet"
        parts = tmp_path / "table.parquet.parts"
        process = _start(slow_bundle, data, out)
        _wait_for_parts(parts, 2, process)
        process.send_signal(signum)
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == 128 + signum
        assert "stopping after the current part" in stderr
        assert "Give the same command again to go on" in stderr
        assert not out.exists()
        assert json.loads((parts / "_summary.json").read_text())["status"] == "interrupted"
        finished = _parts(parts)
        assert {name: _parts(reference)[name] for name in finished} == finished
        assert _start(slow_bundle, data, out).wait(60) == 0
        assert not parts.exists()
        tables = [pq.read_table(path) for path in sorted(reference.glob("part-*"))]
        assert pq.read_table(out).equals(pa.concat_tables(tables))

    def test_two_runs_on_one_folder_are_kept_apart(
        self, slow_bundle: Bundle, uninterrupted: tuple[Path, Path], tmp_path: Path
    ) -> None:
        data, _ = uninterrupted
        first = _start(slow_bundle, data, tmp_path / "out")
        _wait_for_parts(tmp_path / "out", 1, first)
        with pytest.raises(JobError, match="Another run is writing to"):
            run(_job(slow_bundle, data, tmp_path / "out"))
        first.kill()
        first.communicate()


def test_a_part_killed_before_its_rename_is_put_in_place(bundle: Bundle, vectors: Vectors, tmp_path: Path) -> None:
    job = _job(bundle, vectors(64), tmp_path / "out")
    run(job)
    expected = _parts(tmp_path / "out")
    (tmp_path / "out" / "part-00003.parquet").rename(tmp_path / "out" / ".part-00003.parquet.tmp")
    (tmp_path / "out" / "part-00001.parquet").unlink()
    (tmp_path / "out" / ".part-00001.parquet.tmp").write_bytes(expected["part-00001.parquet"][:-1])
    assert run(job).summary["run"]["resumed_parts"] == 3
    assert _parts(tmp_path / "out") == expected
