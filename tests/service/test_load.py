"""Under load with real servers: ten times too much, and an orphaned worker."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from support.echo import WIDTH, activate, item, save_echo_bundle
from support.server import Server, serving

from models.inputs import TensorInput

pytestmark = pytest.mark.slow
LOAD = Path(__file__).parents[2] / "benchmarks" / "servers" / "load.lua"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    """A server with a short queue."""
    bundle = save_echo_bundle(tmp_path / "bundle", TensorInput(shape=(WIDTH,)))
    activate(bundle)
    with serving(bundle, tmp_path / "run", queue=16, max_pending_bytes=4_000_000) as server:
        yield server


def fire(server: Server, body: Path, connections: int, seconds: int) -> dict[str, float]:
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", str(LOAD)]
    environment = {**os.environ, "BODY": str(body), "HEADERS": "content-type: application/json"}
    run = subprocess.run(
        [*command, f"{server.url}/v1/classify"], env=environment, capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


def resident(server: Server) -> int:
    return sum(worker.memory_info().rss for worker in server.workers())


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed (Debian: apt install wrk)")
@pytest.mark.parametrize("instances", [1, 1000])
def test_ten_times_too_much_is_refused_in_bounded_memory_and_passes(
    small: Server, tmp_path: Path, instances: int
) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"instances": [item(1, 1)] * instances}))
    fire(small, body, 8, 2)
    before = resident(small)
    crowd = fire(small, body, 160, 6)
    assert crowd["not_2xx"] > 0, "nothing was refused"
    assert crowd["requests"] > crowd["not_2xx"], "nothing was answered"
    assert crowd["errors"] == 0
    assert resident(small) - before < 60e6
    assert httpx.get(f"{small.url}/readyz").status_code == 200
    after = fire(small, body, 8, 2)
    assert after["not_2xx"] == 0
    assert after["errors"] == 0


def test_workers_do_not_outlive_their_parent(small: Server) -> None:
    workers = small.workers()
    assert workers
    os.kill(small.process.pid, signal.SIGKILL)
    small.process.wait()
    _, alive = psutil.wait_procs(workers, timeout=15)
    assert not alive
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{small.url}/livez", timeout=1)
        except httpx.TransportError:
            return
        time.sleep(0.1)
    raise AssertionError("something still listens")
