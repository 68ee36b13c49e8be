"""Real server processes: pairing under concurrency, swaps, killed workers, drain, and how a start fails."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.echo import WIDTH, activate, item, save_echo_bundle
from support.server import COMMAND, Server, free_port, serving

from calibration.policy import Policy
from calibration.store import PolicyStore
from models.bundle import Bundle
from models.inputs import TensorInput


@asynccontextmanager
async def connected(server: Server, connections: int = 8) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=connections)
    async with httpx.AsyncClient(base_url=server.url, limits=limits, timeout=30) as client:
        yield client


async def classify(client: httpx.AsyncClient, instances: list[list[float]]) -> httpx.Response:
    return await client.post("/v1/classify", json={"instances": instances})


good = st.integers(1, 20)
bad = st.sampled_from(["shape", "json", "type", "empty", "number"])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(good | bad, min_size=1, max_size=30))
def test_everybody_gets_their_own_answer(server: Server, mix: list[int | str]) -> None:
    def body(number: int, kind: int | str) -> tuple[bytes, str]:
        first = item(number, 1)
        if isinstance(kind, int):
            instances = [item(100 * number + k, 1, k % 3) for k in range(kind)]
            return httpx.Request("POST", "/", json={"instances": instances}).content, "application/json"
        broken = {
            "shape": {"instances": [first, first[:3]]},
            "empty": {"instances": []},
            "number": {"instances": [[*first[:4], "x"]]},
            "type": {"instances": [first]},
        }
        content = httpx.Request("POST", "/", json=broken.get(kind, {})).content
        return (b"{" if kind == "json" else content), ("text/plain" if kind == "type" else "application/json")

    async def everyone() -> list[httpx.Response]:
        async with connected(server) as client:
            bodies = [body(number, kind) for number, kind in enumerate(mix)]
            return await asyncio.gather(
                *(client.post("/v1/classify", content=c, headers={"content-type": t}) for c, t in bodies)
            )

    statuses = {"shape": 422, "empty": 422, "number": 422, "json": 400, "type": 415}
    for number, (kind, answer) in enumerate(zip(mix, asyncio.run(everyone()), strict=True)):
        if not isinstance(kind, int):
            assert answer.status_code == statuses[kind]
            continue
        predictions = answer.json()["predictions"]
        assert [p["s_id"] for p in predictions] == [100 * number + k for k in range(kind)]
        assert [p["label"] for p in predictions] == [k % 3 for k in range(kind)]
        assert all(p["id"].startswith(answer.headers["x-request-id"]) for p in predictions)


@pytest.fixture
def own_bundle(tmp_path: Path) -> Bundle:
    bundle = save_echo_bundle(tmp_path / "bundle", TensorInput(shape=(WIDTH,)))
    activate(bundle)
    return bundle


def test_a_swap_under_load_reaches_all_workers_within_a_second_and_is_never_half(
    own_bundle: Bundle, tmp_path: Path
) -> None:
    store = PolicyStore(own_bundle.policies_dir, own_bundle.hash)
    for number in range(2, 6):
        store.add(Policy(tau_id=number / 10, tau_ood=number / 10))
    switched: dict[int, float] = {}
    seen: list[tuple[float, int]] = []

    async def ask(client: httpx.AsyncClient, until: float) -> None:
        while time.monotonic() < until:
            sent = time.monotonic()
            answer = await classify(client, [item(1, 1)] * 3)
            assert answer.status_code == 200, answer.text
            document = answer.json()
            expected = 0.5 if document["policy"] == 1 else document["policy"] / 10
            assert {(p["tau_id"], p["tau_ood"]) for p in document["predictions"]} == {(expected, expected)}
            seen.append((sent, document["policy"]))

    async def switch() -> None:
        for number in (2, 3, 4, 5):
            await asyncio.sleep(1.2)
            await asyncio.to_thread(store.activate, number)
            switched[number] = time.monotonic()

    async def run(server: Server) -> None:
        # A connection stays with one worker: several of them make sure that both are watched.
        until = time.monotonic() + 6.2
        async with connected(server, 12) as client:
            await asyncio.gather(switch(), *(ask(client, until) for _ in range(12)))

    with serving(own_bundle, tmp_path / "run", workers=2) as server:
        asyncio.run(run(server))
    assert Counter(policy for _, policy in seen).keys() == {1, 2, 3, 4, 5}
    for number, at in switched.items():
        late = [policy for sent, policy in seen if sent > at + 1.0]
        assert all(policy >= number for policy in late)


def test_a_killed_worker_costs_only_what_it_held_and_comes_back(own_bundle: Bundle, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()

    async def ask(server: Server, number: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            # One client each: a broken connection must not hide another's answer.
            async with connected(server, 1) as client:
                try:
                    for _ in range(20):
                        answer = await classify(client, [item(number, 1)])
                        assert answer.status_code == 200, answer.text
                        assert answer.json()["predictions"][0]["s_id"] == number
                        outcomes["answered"] += 1
                except httpx.TransportError:
                    outcomes["broken"] += 1

    async def run(server: Server) -> None:
        stop = asyncio.Event()
        tasks = [asyncio.create_task(ask(server, number, stop)) for number in range(8)]
        await asyncio.sleep(0.7)
        before = {worker.pid for worker in server.workers()}
        os.kill(min(before), signal.SIGKILL)
        deadline = time.monotonic() + 30
        while len(after := {worker.pid for worker in server.workers()}) < 2 or after == before:
            assert time.monotonic() < deadline, "the worker did not come back"
            await asyncio.sleep(0.1)
        answered = outcomes["answered"]
        await asyncio.sleep(1)
        stop.set()
        await asyncio.gather(*tasks)
        assert outcomes["answered"] > answered

    with serving(own_bundle, tmp_path / "run", workers=2) as server:
        asyncio.run(run(server))
    # Each of the eight callers can have had one request, or one connection, in the killed worker's hands.
    assert outcomes["broken"] <= 16
    assert outcomes["answered"] > 50


def test_sigterm_says_not_ready_answers_what_comes_and_leaves_nothing(own_bundle: Bundle, tmp_path: Path) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"instances": '
        await asyncio.sleep(0.4)
        yield b"[[1, 1, 1, 0, 0]]}"

    async def run(server: Server) -> None:
        slow = [asyncio.create_task(one_slow(server)) for _ in range(4)]
        await asyncio.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        async with connected(server, 1) as client:
            ready = await client.get("/readyz")
            assert ready.status_code == 503
            assert "draining" in ready.json()["detail"]
            assert ready.headers["connection"] == "close"
            late = await classify(client, [item(1, 1)])
            assert late.status_code == 200
        assert await asyncio.gather(*slow) == [200] * 4

    async def one_slow(server: Server) -> int:
        async with connected(server, 1) as client:
            answer = await client.post("/v1/classify", content=slowly(), headers={"content-type": "application/json"})
            return answer.status_code

    with serving(own_bundle, tmp_path / "run", workers=2, drain_seconds=1.5) as server:
        asyncio.run(run(server))
        assert server.process.wait(30) == 0
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["server.log"]


def test_a_request_under_way_at_the_end_of_the_drain_is_still_answered(own_bundle: Bundle, tmp_path: Path) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b'{"instances": '
        await asyncio.sleep(2)
        yield b"[[1, 1, 1, 0, 0]]}"

    async def run(server: Server) -> int:
        async with connected(server, 1) as client:
            request = asyncio.create_task(
                client.post("/v1/classify", content=slowly(), headers={"content-type": "application/json"})
            )
            await asyncio.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            return (await request).status_code

    with serving(own_bundle, tmp_path / "run", drain_seconds=0) as server:
        assert asyncio.run(run(server)) == 200


def start(bundle: Path, tmp_path: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    port = environment.pop("port", str(free_port()))
    return subprocess.run(
        [*COMMAND, str(bundle), "--port", port],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), **environment},
    )


def damage_model(bundle: Bundle) -> None:
    with (bundle.path / "model.onnx").open("ab") as stream:
        stream.write(b"x")


def other_policy(bundle: Bundle) -> None:
    path = bundle.policies_dir / "0001.json"
    path.write_text(path.read_text().replace(bundle.hash, "0" * 64))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (damage_model, "sha256"),
        (lambda bundle: (bundle.path / "manifest.json").write_text("{"), "manifest.json"),
        (lambda bundle: shutil.rmtree(bundle.path), "not a bundle"),
        (other_policy, "bundle"),
    ],
)
def test_a_bad_bundle_ends_the_start_with_one_sentence(
    own_bundle: Bundle, tmp_path: Path, damage: Any, words: str
) -> None:
    damage(own_bundle)
    ended = start(own_bundle.path, tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("airlock: ")
    assert ended.stderr.count("\n") == 1
    assert words in ended.stderr
    assert not list(tmp_path.glob("airlock-*"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"state_dir": "file"}, "the state directory"),
        ({"state_dir": "file/state", "monitoring__enabled": "false"}, "the state directory"),
        ({"monitoring__ledger_url": "mysql://user:secret@host/base"}, "SQLite or PostgreSQL"),
        ({"monitoring__ledger_url": "postgresql://user:secret@host:port/base"}, "URL cannot be read"),
        ({"monitoring": "secret"}, 'field "monitoring"'),
        ({"port__x": "secret"}, "AIRLOCK_PORT__X is no setting"),
    ],
)
def test_settings_that_cannot_work_end_the_start(
    own_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], words: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    for key, value in settings.items():
        monkeypatch.setenv(f"AIRLOCK_{key.upper()}", str(tmp_path / value) if key == "state_dir" else value)
    ended = start(own_bundle.path, tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.startswith("airlock: ")
    assert ended.stderr.count("\n") == 1
    assert words in ended.stderr
    assert "secret" not in ended.stderr
    assert not list(tmp_path.glob("airlock-*"))


def test_a_taken_port_ends_the_start(own_bundle: Bundle, server: Server, tmp_path: Path) -> None:
    ended = start(own_bundle.path, tmp_path, port=str(server.port))
    assert ended.returncode == 1
    assert str(server.port) in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_callers_own_service_module_is_never_taken(own_bundle: Bundle, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "service.py").write_text("raise SystemExit('the wrong service')")
    with serving(own_bundle, run) as server:
        assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_plain_bentoml_serve_works_too(own_bundle: Bundle, tmp_path: Path) -> None:
    port = free_port()
    environment = {
        **os.environ,
        "AIRLOCK_BUNDLE": str(own_bundle.path),
        "AIRLOCK_DRAIN_SECONDS": "0",
        "AIRLOCK_MONITORING__ENABLED": "false",
        "BENTOML_DO_NOT_TRACK": "True",
        "BENTOML_HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path),
    }
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [str(Path(COMMAND[0]).parent / "bentoml"), "serve", "service.app:Airlock", "--port", str(port)],
        cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/classify", json={"instances": [item(1, 1)]})
        assert answer.json()["predictions"][0]["decision"] == "accept"
    finally:
        process.terminate()
        process.wait(30)
