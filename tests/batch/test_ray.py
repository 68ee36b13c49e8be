"""The Ray engine on a real local Ray with two workers, one of which is killed."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from models.bundle import Bundle
from models.errors import DataError
from service.batch import Job, JobError, Wishes, run
from service.batch.ray_engine import Shares, _check_reachable

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_BACKEND_LOG_LEVEL"] = "fatal"
ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield
    ray.shutdown()


def _job(bundle: Bundle, data: Path, out: Path, **options: Any) -> Job:
    wishes = Wishes(batch=16, part_rows=64, workers=2)
    return Job(bundle.path, str(data), out, **({"wishes": wishes, "quiet": True} | options))


def _parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def _workers() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::MapWorker"):
                found.append(process)
        except psutil.Error:
            continue
    return found


class _Killer(threading.Thread):
    """Kills one scoring actor once the first parts are written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.manifest = folder / "_manifest.jsonl"
        self.killed: int | None = None

    def run(self) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self.manifest.exists() and self.manifest.read_text().count('"record": "part"') >= 2:
                victim = _workers()[0]
                os.kill(victim.pid, signal.SIGKILL)
                self.killed = victim.pid
                return
            time.sleep(0.02)


@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_loses_nothing(slow_bundle: Bundle, tmp_path: Path) -> None:
    x = np.random.default_rng(5).normal(size=(3000, 4)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x, y=np.arange(3000) % 3)
    run(_job(slow_bundle, tmp_path / "x.npz", tmp_path / "local"))
    killer = _Killer(tmp_path / "ray")
    killer.start()
    outcome = run(_job(slow_bundle, tmp_path / "x.npz", tmp_path / "ray", engine="ray"))
    killer.join(1)
    assert killer.killed is not None, "the job was over before a worker could be killed"
    assert not psutil.pid_exists(killer.killed)
    assert outcome.complete
    assert outcome.summary["counts"]["rows"] == 3000
    assert _parts(tmp_path / "ray") == _parts(tmp_path / "local")


@pytest.mark.usefixtures("cluster")
def test_either_engine_goes_on_where_the_other_stopped(
    image_bundle: Bundle, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(photos.parent)  # where no actor is
    photos = Path(photos.name)
    wishes = Wishes(batch=2, part_rows=4, workers=1)
    run(_job(image_bundle, photos, tmp_path / "local", wishes=wishes))
    first = run(_job(image_bundle, photos, Path("both"), wishes=wishes, max_errors=0))
    assert first.summary["status"] == "too_many_errors"
    rest = run(_job(image_bundle, photos, Path("both"), wishes=wishes, engine="ray"))
    assert rest.complete
    assert rest.summary["run"]["resumed_parts"] >= 1
    assert rest.summary["counts"]["errors"] == 2
    assert "ray" in rest.summary["versions"]
    assert _parts(tmp_path / "both") == _parts(tmp_path / "local")


@pytest.mark.usefixtures("cluster")
def test_what_a_worker_refuses_is_said_in_its_sentence(bundle: Bundle, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((100, 4), np.float32), y=np.where(np.arange(100) == 60, 7, 0))
    with pytest.raises(DataError, match="The label 7 arrived; classes count from 0 to 2"):
        run(_job(bundle, tmp_path / "x.npz", tmp_path / "out", engine="ray", wishes=Wishes(batch=16, part_rows=16)))


@pytest.mark.parametrize(
    ("resources", "asked", "use_gpus", "shares"),
    [
        ({"CPU": 8.0}, None, True, Shares(8, 1, 0.0)),
        ({"CPU": 8.0}, 2, True, Shares(2, 1, 0.0)),
        ({"CPU": 64.0, "GPU": 4.0}, None, True, Shares(4, 16, 1.0)),
        ({"CPU": 64.0, "GPU": 4.0}, 8, True, Shares(8, 8, 0.5)),
        ({"CPU": 64.0, "GPU": 4.0}, None, False, Shares(64, 1, 0.0)),
        ({}, None, True, Shares(1, 1, 0.0)),
    ],
)
def test_each_gpu_gets_an_actor_and_its_share_of_the_cores(
    resources: dict[str, float], asked: int | None, use_gpus: bool, shares: Shares
) -> None:
    assert Shares.of(resources, asked, use_gpus=use_gpus) == shares


def test_an_address_where_nobody_is_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(JobError, match=f"No Ray cluster answers at {address}"):
        _check_reachable(address)
