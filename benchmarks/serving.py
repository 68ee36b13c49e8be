"""Claims of the service, measured side by side in one run: the product, a hand-written FastAPI + orjson server and
MLServer answer for the same graph on the loopback interface, under the same load (`wrk`, closed loop).

1. MLP, JSON, one worker, 32 connections: at least 0.7 × FastAPI and 2 × MLServer.
2. CNN of about a millisecond, JSON: at least 0.88 × FastAPI.
3. 64 instances a request, binary: at least 0.75 × FastAPI's binary route.
4. p99 at most 2 × p50 up to 32 connections.
5. Two workers: at least 1.7 × one.

The yardsticks keep no record of what they answer, so the claims are about the product with monitoring off; a row with
metrics, monitors and ledger on, as it comes, stands beside them. Servers take turns in every round, so that a noisy
machine disturbs all alike; a figure is the median over rounds, a ratio the median of the rounds' ratios. Besides
requests a second the table has the CPU time that the server's processes spent a request, which other work on the
machine disturbs least, and its ratio. MLServer needs an environment of its own (its pins are old): `.venv-bench` is
made at the first run, or `--no-mlserver` leaves it out.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from zoo import small_cnn, tiny_mlp

from calibration.policy import Policy
from calibration.store import PolicyStore
from models.build import Recipe, build
from models.bundle import Bundle
from models.runtime import RuntimeOptions

HERE = Path(__file__).parent
BENCH = HERE.parent / ".venv-bench"
TAU_ID, TAU_OOD = 0.0, 1.0
JSON = "content-type: application/json"


@dataclass(frozen=True)
class Load:
    """One way to ask: a body, its headers, where it goes at each kind of server, and how many ask at once."""

    name: str
    connections: int
    targets: dict[str, tuple[str, Path, str]]  # server kind → (path, body file, headers)


@dataclass
class Server:
    """A running server of one kind."""

    kind: str
    port: int
    process: "subprocess.Popen[bytes]"

    def cpu_seconds(self) -> float:
        main = psutil.Process(self.process.pid)
        return sum(sum(p.cpu_times()[:2]) for p in (main, *main.children(recursive=True)))


@dataclass
class Figures:
    """What the rounds gave for one server and load."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    generator: list[float] = field(default_factory=list)  # cores that the load generator kept busy
    errors: int = 0


def make_bundle(folder: Path, name: str, model: onnx.ModelProto) -> Bundle:
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    recipe = Recipe(s_id="msp", s_ood="energy", name=name, runtime=RuntimeOptions(provider="cpu", threads=1))
    bundle = build(path, None, folder / name, recipe)
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    store.add(Policy(tau_id=TAU_ID, tau_ood=TAU_OOD))
    store.activate(1)
    return bundle


def make_load(folder: Path, bundle: Bundle, n: int, connections: int, *, binary: bool = False) -> Load:
    """The same instances for every server, each in the form it likes best."""
    shape = bundle.manifest.input.item_shape
    x = np.round(np.random.default_rng(0).normal(size=(n, *shape)), 4).astype(np.float32)  # type: ignore[arg-type]
    stem = folder / f"{bundle.manifest.name}-{n}"
    tensor: dict[str, Any] = {"name": "x", "shape": list(x.shape), "datatype": "FP32"}
    name = f"{bundle.manifest.name}, {n} a request, {'binary' if binary else 'JSON'}, {connections} connections"
    infer = f"/v2/models/{bundle.manifest.name}/infer"
    if binary:
        raw = _write(stem.with_suffix(".raw"), x.tobytes())
        tensor["parameters"] = {"binary_data_size": x.nbytes}
        head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        body = _write(stem.with_suffix(".v2bin"), head + x.tobytes())
        kind = "content-type: application/octet-stream"
        size = f"{kind}\ninference-header-content-length: {len(head)}"
        ours = (infer, body, size)
        return Load(name, connections, {"fastapi": ("/binary", raw, kind), "airlock": ours, "monitored": ours})
    native = _write(stem.with_suffix(".json"), json.dumps({"instances": _short(x)}).encode())
    v2 = _write(stem.with_suffix(".v2"), json.dumps({"inputs": [{**tensor, "data": _short(x.ravel())}]}).encode())
    return Load(
        name,
        connections,
        {
            "fastapi": ("/v1/classify", native, JSON),
            "airlock": ("/v1/classify", native, JSON),
            "airlock x2": ("/v1/classify", native, JSON),
            "monitored": ("/v1/classify", native, JSON),
            "mlserver": (infer, v2, JSON),
        },
    )


def _short(x: np.ndarray) -> list[Any]:
    return np.round(x.astype(float), 4).tolist()  # type: ignore[no-any-return]


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(kind: str, command: list[str], port: int, ready: str, folder: Path, **env: str) -> Iterator[Server]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1", **env}
    with (folder / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)
    try:
        _wait(f"http://127.0.0.1:{port}{ready}", process, folder / f"{kind}.log")
        yield Server(kind, port, process)
    finally:
        process.terminate()
        process.wait(60)


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"a server ended:\n{log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit(f"{url} does not answer:\n{log.read_text()[-2000:]}")


@contextmanager
def fastapi(bundle: Bundle, folder: Path) -> Iterator[Server]:
    port, shape = free_port(), json.dumps(bundle.manifest.input.item_shape)
    script = str(HERE / "servers" / "fastapi_server.py")
    command = [sys.executable, script, str(bundle.model_path), str(TAU_ID), str(TAU_OOD), shape, str(port)]
    with started("fastapi", command, port, "/openapi.json", folder) as server:
        yield server


@contextmanager
def airlock(bundle: Bundle, folder: Path, kind: str) -> Iterator[Server]:
    port, workers, monitoring = free_port(), 2 if kind == "airlock x2" else 1, kind == "monitored"
    command = [sys.executable, "-P", "-c", "from service.cli import main; main()", "serve", str(bundle.path)]
    env = {"AIRLOCK_DRAIN_SECONDS": "0", "AIRLOCK_MONITORING__ENABLED": str(monitoring).lower()}
    arguments = [*command, "--port", str(port), "--workers", str(workers)]
    with started(kind, arguments, port, "/readyz", folder, **env) as server:
        yield server


@contextmanager
def mlserver(bundle: Bundle, folder: Path) -> Iterator[Server]:
    port, home = free_port(), folder / f"mlserver-{bundle.manifest.name}"
    home.mkdir()
    shutil.copy(HERE / "servers" / "mlserver_gate.py", home)
    settings = {
        "http_port": port, "grpc_port": free_port(), "metrics_port": free_port(), "host": "127.0.0.1",
        "parallel_workers": 0, "debug": False, "use_structured_logging": False, "metrics_endpoint": None,
    }  # fmt: skip
    model = {
        "name": bundle.manifest.name,
        "implementation": "mlserver_gate.GateModel",
        "parameters": {"uri": str(bundle.model_path), "extra": {"tau_id": TAU_ID, "tau_ood": TAU_OOD}},
    }
    (home / "settings.json").write_text(json.dumps(settings))
    (home / "model-settings.json").write_text(json.dumps(model))
    command = [str(BENCH / "bin" / "mlserver"), "start", str(home)]
    with started("mlserver", command, port, "/v2/health/ready", home) as server:
        yield server


def ensure_bench_environment() -> None:
    if (BENCH / "bin" / "mlserver").exists():
        return
    print("making .venv-bench for MLServer ...", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", str(BENCH)], check=True)
    pip = [str(BENCH / "bin" / "python"), "-m", "pip", "install", "--quiet", "mlserver==1.7.1", "onnxruntime"]
    subprocess.run(pip, check=True)


def fire(server: Server, load: Load, seconds: int) -> dict[str, float]:
    path, body, headers = load.targets[server.kind]
    command = ["wrk", "-t1", f"-c{load.connections}", f"-d{seconds}s", "-s", str(HERE / "servers" / "load.lua")]
    environment = {**os.environ, "BODY": str(body), "HEADERS": headers}
    before, used = server.cpu_seconds(), _children_seconds()
    run = subprocess.run(
        [*command, f"http://127.0.0.1:{server.port}{path}"], env=environment, capture_output=True, text=True, check=True
    )
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    result["generator"] = (_children_seconds() - used) / result["seconds"]
    result["cpu_us"] = (server.cpu_seconds() - before) / max(1.0, result["requests"]) * 1e6
    return result


def _children_seconds() -> float:
    """CPU of processes that have ended: while servers run these are the load generators."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(servers: list[Server], load: Load, rounds: int, seconds: int) -> dict[str, Figures]:
    """Every server in turn, `rounds` times after one that warms up."""
    figures = {server.kind: Figures() for server in servers if server.kind in load.targets}
    for number in range(rounds + 1):
        for server in servers:
            if server.kind not in figures:
                continue
            result = fire(server, load, seconds if number else 1)
            if not number:
                continue
            found = figures[server.kind]
            found.rates.append(result["requests"] / result["seconds"])
            found.cpu_us.append(result["cpu_us"])
            found.p50.append(result["p50_ms"])
            found.p99.append(result["p99_ms"])
            found.generator.append(result["generator"])
            found.errors += int(result["errors"] + result["not_2xx"])
    return figures


def show(load: Load, figures: dict[str, Figures]) -> None:
    base = figures.get("fastapi") or figures["airlock"]
    print(f"\n{load.name}")
    print(f"  {'server':12}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'ratio':>8}{'CPU µs':>9}{'ratio':>8}{'errors':>8}")
    for kind, found in figures.items():
        print(
            f"  {kind:12}{statistics.median(found.rates):9.0f}{statistics.median(found.p50):9.2f}"
            f"{statistics.median(found.p99):9.2f}{ratio(found, base):8.2f}{statistics.median(found.cpu_us):9.0f}"
            f"{statistics.median(base.cpu_us) / statistics.median(found.cpu_us):8.2f}{found.errors:8d}"
        )


def ratio(one: Figures, other: Figures) -> float:
    return statistics.median(a / b for a, b in zip(one.rates, other.rates, strict=True))


def tail(found: Figures) -> float:
    return statistics.median(b / a for a, b in zip(found.p50, found.p99, strict=True))


class Claims:
    """Goals and what was found, kept for the end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def at_least(self, what: str, goal: float, found: float) -> None:
        self.rows.append({"claim": what, "goal": f"≥ {goal:g}", "found": round(found, 3), "met": found >= goal})

    def at_most(self, what: str, goal: float, found: float) -> None:
        self.rows.append({"claim": what, "goal": f"≤ {goal:g}", "found": round(found, 3), "met": found <= goal})

    def two_workers(self, what: str, figures: dict[str, Figures]) -> None:
        """With the bound: one worker fills one core, and the load generator needs its share of all of them."""
        two = figures["airlock x2"]
        self.at_least(f"{what}, two workers / one", 1.7, ratio(two, figures["airlock"]))
        left = min(2.0, (os.cpu_count() or 1) - statistics.median(two.generator))
        self.notes.append(f"{what}: beside the load generator there was room for {left:.2f} busy workers")

    def show(self) -> None:
        print(f"\n{'claim':58}{'goal':>8}{'found':>8}")
        for row in self.rows:
            print(f"{row['claim']:58}{row['goal']:>8}{row['found']:8.2f}  {'met' if row['met'] else 'MISSED'}")
        print("\n".join(self.notes))


def run_mlp(bundle: Bundle, folder: Path, servers: list[Server], args: argparse.Namespace, claims: Claims) -> None:
    one = make_load(folder, bundle, 1, 32)
    figures = measure(servers, one, args.rounds, args.seconds)
    show(one, figures)
    claims.at_least("MLP JSON, product / FastAPI", 0.7, ratio(figures["airlock"], figures["fastapi"]))
    if "mlserver" in figures:
        claims.at_least("MLP JSON, product / MLServer", 2.0, ratio(figures["airlock"], figures["mlserver"]))
    claims.at_most("MLP JSON, p99 / p50 at 32 connections", 2.0, tail(figures["airlock"]))
    claims.two_workers("MLP JSON", figures)
    for connections in (1, 8):
        load = make_load(folder, bundle, 1, connections)
        figures = measure([s for s in servers if s.kind in ("fastapi", "airlock")], load, args.rounds, args.seconds)
        show(load, figures)
        claims.at_most(f"MLP JSON, p99 / p50 at {connections} connections", 2.0, tail(figures["airlock"]))
    for binary in (False, True):
        load = make_load(folder, bundle, 64, 8, binary=binary)
        figures = measure(servers, load, args.rounds, args.seconds)
        show(load, figures)
        if binary:
            claims.at_least("64 a request, binary / FastAPI", 0.75, ratio(figures["airlock"], figures["fastapi"]))


def run_cnn(bundle: Bundle, folder: Path, servers: list[Server], args: argparse.Namespace, claims: Claims) -> None:
    for binary in (False, True):
        load = make_load(folder, bundle, 1, 8, binary=binary)
        figures = measure(servers, load, args.rounds, args.seconds)
        show(load, figures)
        if binary:
            continue
        claims.at_least("CNN JSON, product / FastAPI", 0.88, ratio(figures["airlock"], figures["fastapi"]))
        claims.at_most("CNN JSON, p99 / p50 at 8 connections", 2.0, tail(figures["airlock"]))
        claims.two_workers("CNN JSON", figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of load a server and round")
    parser.add_argument("--quick", action="store_true", help="one short round, a smoke test")
    parser.add_argument("--no-mlserver", action="store_true")
    parser.add_argument("--json", type=Path, help="write the claims to this file")
    args = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is needed (Debian: apt install wrk)")
    if args.quick:
        args.rounds, args.seconds = 1, 1
    if not args.no_mlserver:
        ensure_bench_environment()
    claims = Claims()
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as name:
        folder = Path(name)
        for label, model, run in (("mlp", tiny_mlp(64), run_mlp), ("cnn", small_cnn(), run_cnn)):
            bundle = make_bundle(folder, label, model)
            with ExitStack() as stack:
                servers = [stack.enter_context(fastapi(bundle, folder))]
                servers += [
                    stack.enter_context(airlock(bundle, folder, kind))
                    for kind in ("airlock", "airlock x2", "monitored")
                ]
                if not args.no_mlserver:
                    servers.append(stack.enter_context(mlserver(bundle, folder)))
                run(bundle, folder, servers, args, claims)
    claims.show()
    if args.json:
        args.json.write_text(json.dumps(claims.rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
