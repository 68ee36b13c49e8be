"""Claims of monitoring, measured side by side in one run.

1. False alarms: at most α over 20,000 steps in 1,000 simulations, for every monitor; a fixed-n test repeated every
   hundred steps beside them.
2. Detection: a selective risk that doubles from 2 % to 4 % is found in a median of at most 700 labels; the repeated
   fixed-n test and MAPIE's RiskMonitoring on the same labels.
3. Cost: monitor, metrics and ledger take at most 15 µs a decision, amortised, and at most 5 % of the throughput of the
   embedded bundle; servers with monitoring on and off take turns under the same load.

`python benchmarks/monitors.py [--quick] [--only false-alarms|detection|cost]`
"""

import argparse
import asyncio
import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from scipy.special import betainc
from scipy.stats import norm

from calibration.calibrate import calibrate
from calibration.policy import Policy
from calibration.store import PolicyStore
from calibration.table import ScoreTable
from models.bundle import Bundle
from models.fashion import bundle_path
from service.gate import DecisionBatch, ItemIds, PolicyView
from service.monitoring.counts import Counts
from service.monitoring.eprocess import RestartingBets, log_departure, log_excess
from service.monitoring.layout import MAX_CUTS
from service.monitoring.monitors import LABEL_HORIZON, RiskMonitor
from service.monitoring.recorder import Recorder
from service.monitoring.reference import SCORES, Promise, score_cuts
from service.monitoring.watch import Watch
from service.settings import Settings
from service.settings_monitoring import MonitoringSettings

ALPHA = 0.05
Array = NDArray[Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few simulations, short loads")
    parser.add_argument("--only", choices=["false-alarms", "detection", "cost"])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)  # made-up scores raise alarms, as they should
    parts: dict[str, Callable[[bool], None]] = {
        "false-alarms": false_alarms,
        "detection": detection,
        "cost": cost,
    }
    for name, part in parts.items():
        if given.only in (None, name):
            part(given.quick)


# 1. False alarms ------------------------------------------------------------------------------------------------------


def false_alarms(quick: bool) -> None:
    runs, steps, look = (100, 2_000, 20) if quick else (1_000, 20_000, 20)
    rng = np.random.default_rng(1)
    print(f"\nFalse alarms at α = {ALPHA:.0%}: {runs:,} runs of {steps:,} steps with nothing wrong")
    rate, trials = 0.8, np.arange(look, steps + 1, look)
    hits = rng.binomial(look, rate, (runs, len(trials)))
    totals = hits.cumsum(axis=1)
    mark = -math.log(ALPHA)
    row("acceptance, beta mixture", np.mean(log_departure(totals, trials, rate, rate).max(axis=1) >= mark))
    restarting = [_ever([rate, 1 - rate], np.stack([run, look - run], axis=1), look) for run in hits]
    row("acceptance, restarting", np.mean(restarting))
    wrong = rng.binomial(100, 0.02, (runs, steps // 100))
    row("selective risk", np.mean([_ever_risk(run, 100) for run in wrong]))
    kinds = _whole_watch(runs, steps, rng)
    for kind, share in kinds.items():
        row(f"  whole service, {kind}", share)
    row("for comparison: z-test repeated every 100 steps", _repeated_test(totals, trials, rate), limit=None)


def _ever(limits: list[float], events: Array, trials: int) -> bool:
    bets = RestartingBets(limits)
    return any(bets.update(k, trials) >= -math.log(ALPHA) for k in events)


def _ever_risk(wrong: Array, look: int) -> bool:
    monitor = RiskMonitor(Promise(0.02, "benchmark"), ALPHA)
    for i, total in enumerate(wrong.cumsum().tolist(), 1):
        monitor.hear(i * look, total, 0.0)
    return monitor.alarm.raised


def _whole_watch(runs: int, steps: int, rng: np.random.Generator) -> dict[str, float]:
    """Calibrate on a fresh draw, then serve the same world: the luck of the calibration draw is part of it."""
    settings = MonitoringSettings(alpha=ALPHA, tolerance=0.0)
    raised: dict[str, int] = {}
    for _ in range(runs):
        policy = calibrate(ScoreTable.from_columns(**_world(rng, 1_000)), "tpr").policy
        watch = Watch(policy.model_copy(update={"number": 1}), settings, 0.0)
        traffic = _world(rng, steps)
        for start in range(0, steps, 200):
            watch.take(_counts(policy, {k: v[start : start + 200] for k, v in traffic.items()}), 0.0)
        for kind in ("acceptance", "acceptance_recent", "score_s_id", "score_s_ood"):
            raised[kind] = raised.get(kind, 0) + watch.alarm(kind).raised
    return {kind: count / runs for kind, count in raised.items()}


def _world(rng: np.random.Generator, n: int) -> dict[str, Array]:
    is_id = rng.random(n) < 0.8
    correct = is_id & (rng.random(n) < 0.93)
    s_id, s_ood = rng.normal(0, 1, n) + 2 * correct, rng.normal(0, 1, n) + 2.5 * is_id
    return {"s_id": s_id, "s_ood": s_ood, "is_id": is_id, "correct": correct}


def _counts(policy: Policy, traffic: dict[str, Array]) -> Counts:
    accept = policy.decide(traffic["s_id"], traffic["s_ood"]).accept
    less, at_most = {}, {}
    for score in SCORES:
        at = np.full(MAX_CUTS, -np.inf)
        cuts = score_cuts(policy, score)[0]
        at[: len(cuts)] = cuts
        less[score] = (traffic[score][:, None] < at).sum(axis=0).astype(float)
        at_most[score] = (traffic[score][:, None] <= at).sum(axis=0).astype(float)
    return Counts(len(accept), int(accept.sum()), len(accept), less, at_most)


def _repeated_test(totals: Array, trials: Array, rate: float) -> float:
    looks = trials % 100 == 0
    z = (totals[:, looks] - rate * trials[looks]) / np.sqrt(trials[looks] * rate * (1 - rate))
    return float(np.mean((2 * norm.sf(np.abs(z)) <= ALPHA).any(axis=1)))


# 2. Detection ---------------------------------------------------------------------------------------------------------


def detection(quick: bool) -> None:
    runs, rivals, longest = (40, 3, 3_000) if quick else (1_000, 30, 4_000)
    rng = np.random.default_rng(2)
    labels = rng.random((runs, longest)) < 0.04
    print(f"\nLabels until a risk of 4 % against a promise of 2 % is found, α = {ALPHA:.0%}, {runs:,} runs")
    ours = _risk_first(labels)
    median("ours", ours, longest, limit=700)
    median("binomial test repeated every 100 labels", _binomial_first(labels), longest)
    median(f"MAPIE RiskMonitoring ({rivals} runs)", [_mapie_first(run) for run in labels[:rivals]], longest)
    quiet = rng.random((runs, longest)) < 0.02
    print("  and the share of runs in which they cry wolf at a risk of 2 %:")
    row("ours", np.mean(np.array(_risk_first(quiet)) <= longest))
    row("binomial test repeated every 100 labels", np.mean(np.array(_binomial_first(quiet)) <= longest), limit=None)
    found = [_mapie_first(run) for run in quiet[:rivals]]
    row(f"MAPIE RiskMonitoring ({rivals} runs)", np.mean(np.array(found) <= longest), limit=None)
    late = np.concatenate([rng.random((runs, 5_000)) < 0.01, labels], axis=1)
    print("  the same rise after 5,000 labels at a risk of 1 %:")
    median("ours", [first - 5_000 for first in _risk_first(late)], longest)
    whole = log_excess(late.cumsum(axis=1), np.arange(1, late.shape[1] + 1), 0.02)
    median("without restarts", [first - 5_000 for first in _first(whole >= -math.log(ALPHA))], longest)


def _risk_first(labels: Array) -> list[int]:
    """When the risk monitor's wealth reaches its mark, looked at after every label."""
    n = labels.shape[1]
    whole = log_excess(labels.cumsum(axis=1), np.arange(1, n + 1), 0.02)
    restarting = _restarting_paths(labels)
    return _first(np.logaddexp(whole, restarting) - math.log(2) >= -math.log(ALPHA))


def _restarting_paths(labels: Array) -> Array:
    """The log wealth of RestartingBets on every run after every label, all runs at once."""
    runs, n = labels.shape
    model = RestartingBets([0.02], horizon=LABEL_HORIZON)
    gain, loss = model._on_event[0], model._on_miss[0]
    wealth = np.broadcast_to(model.log_wealth[0], (runs, len(gain))).copy()
    reserve, found = model.log_reserve, np.empty((runs, n))
    for i in range(n):
        wealth += np.where(labels[:, i, None], gain, loss)
        before, after = model._kept(i), model._kept(i + 1)
        wealth = np.logaddexp(wealth, reserve + math.log1p(-after / before) - math.log(len(gain)))
        reserve += math.log(after / before)
        found[:, i] = np.logaddexp(np.logaddexp.reduce(wealth, axis=1), reserve)
    return found


def _binomial_first(labels: Array) -> list[int]:
    n = np.arange(100, labels.shape[1] + 1, 100)
    k = labels.cumsum(axis=1)[:, n - 1]
    tail = betainc(np.maximum(k, 1), n - k + 1, 0.02)  # P(Bin(n, 0.02) ≥ k)
    return [100 * first if first <= len(n) else labels.shape[1] + 1 for first in _first((tail <= ALPHA) & (k > 0))]


def _mapie_first(labels: Array) -> int:
    """RiskMonitoring with the same limit; its level is halved between reference and stream, so twice α is its α."""
    from mapie.exchangeability_testing import RiskMonitoring

    monitor = RiskMonitoring(risk="accuracy", test_level=2 * ALPHA, threshold=0.02, warn=False)
    monitor.update(np.zeros(len(labels), dtype=int), labels.astype(int))
    return _first(monitor.online_risk_lower_bound_sequence_history[None] > 0.02)[0]


def _first(reached: Array) -> list[int]:
    """The first position (from 1) where it holds in every row; one beyond the end where it never does."""
    found: list[int] = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, reached.shape[1] + 1).tolist()
    return found


# 3. Cost --------------------------------------------------------------------------------------------------------------


def cost(quick: bool) -> None:
    seconds = 2.0 if quick else 8.0
    print("\nCPU time of monitor, metrics and ledger a decision, beside an event loop (target ≤ 15 µs)")
    for rate, size in ((1_000, 1), (2_000, 1), (5_000, 1), (20_000, 16)):
        spent = asyncio.run(_recorder_cost(rate, size, seconds))
        note(f"{rate:,} decisions a second, {size} a request", f"{spent:6.1f} µs", spent <= 15.0)
    if shutil.which("wrk") is None:
        print("  throughput: skipped, wrk is not installed")
        return
    throughput(rounds=2 if quick else 7, seconds=2 if quick else 6)


async def _recorder_cost(rate: int, size: int, seconds: float) -> float:
    """CPU time of the recorder's threads and of its calls on the event loop, per decision."""
    with tempfile.TemporaryDirectory() as directory:
        bundle = Bundle.open(bundle_path())
        store = PolicyStore(bundle.policies_dir, bundle.hash)
        policy = store.active()
        assert policy is not None
        context: Any = SimpleNamespace(
            settings=Settings(), bundle=bundle, store=store, gate=SimpleNamespace(view=PolicyView(policy)),
            admission=SimpleNamespace(in_flight=0), state_dir=Path(directory),
        )  # fmt: skip
        batches = _batches(policy, size)
        recorder = Recorder(context)
        await recorder.start()
        await _loop(recorder.observe, batches, rate, size, 1.5)
        before = _thread_seconds()
        on_loop, decided = await _loop(recorder.observe, batches, rate, size, seconds)
        await asyncio.sleep(0.5)  # what was sent last is still being written
        spent = _thread_seconds() - before + on_loop
        await recorder.stop()
        return spent / decided * 1e6


def _batches(policy: Policy, size: int) -> list[DecisionBatch]:
    rng, made = np.random.default_rng(3), []
    for i in range(4_000):
        s_id, s_ood = rng.normal(5, 3, size), rng.normal(0, 20, size)
        accept, reason = policy.decide(s_id, s_ood)
        request = f"{i:012x}{rng.bytes(10).hex()}"
        ids, label = ItemIds(request, size), rng.integers(0, 8, size)
        made.append(
            DecisionBatch(request, ids, time.time(), label, s_id, s_ood, accept, reason, policy, 0.001, size)
        )  # fmt: skip
    return made


async def _loop(
    observe: Callable[[DecisionBatch], None], batches: list[DecisionBatch], rate: int, size: int, seconds: float
) -> tuple[float, int]:
    """Observe at a rate; returns the CPU seconds of the calls themselves, and how many decisions there were."""
    start, sent, spent = time.perf_counter(), 0, 0.0
    while (passed := time.perf_counter() - start) < seconds:
        due = [batches[i % len(batches)] for i in range(sent, int(passed * rate / size))]
        began = time.thread_time()
        for batch in due:
            observe(batch)
        spent += time.thread_time() - began
        sent += len(due)
        await asyncio.sleep(0.005)
    return spent, sent * size


def _thread_seconds() -> float:
    """CPU seconds that the threads of monitoring have used."""
    clocks = [time.pthread_getcpuclockid(t.ident) for t in threading.enumerate() if t.ident and "airlock" in t.name]
    return sum(time.clock_gettime(clock) for clock in clocks)


def throughput(rounds: int, seconds: int) -> None:
    """The embedded bundle behind two servers, monitoring on and off, taking turns under the same closed-loop load."""
    print(
        f"\nThroughput of the embedded bundle, one image a request, {rounds} rounds of {seconds} s each, taking turns"
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        script = directory / "post.lua"
        script.write_text(_lua())
        servers = {on: _Server(directory / str(on), on) for on in (True, False)}
        try:
            found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            for server in servers.values():
                server.load(script, 2)
            for i in range(rounds):
                for on in (True, False) if i % 2 else (False, True):
                    found[on].append(servers[on].load(script, seconds))
            recorded = servers[True].status()["ledger"]
        finally:
            for server in servers.values():
                server.stop()
    rates = {on: statistics.median(rate for rate, _ in runs) for on, runs in found.items()}
    spent = {on: statistics.median(cpu for _, cpu in runs) for on, runs in found.items()}
    ratio = statistics.median(on[0] / off[0] for on, off in zip(found[True], found[False], strict=True))
    note("requests a second, off", f"{rates[False]:8.0f}", None)
    note("requests a second, on", f"{rates[True]:8.0f}", None)
    note("on / off, median of paired rounds (target ≥ 0.95)", f"{ratio:8.3f}", ratio >= 0.95)
    extra = spent[True] - spent[False]
    note("server CPU a request, on - off", f"{extra:6.1f} µs ({extra / spent[False]:.1%})", None)
    note("decisions recorded / dropped", f"{recorded['written']:,} / {recorded['dropped']:,}", None)


class _Server:
    """`airlock serve` of the embedded bundle with one worker."""

    def __init__(self, directory: Path, monitoring: bool) -> None:
        directory.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {
            **os.environ, "AIRLOCK_MONITORING__ENABLED": str(monitoring).lower(), "AIRLOCK_DRAIN_SECONDS": "0",
            "AIRLOCK_STATE_DIR": str(directory / "state"), "AIRLOCK_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-c", "from service.cli import main; main()", "serve"]
        command += ["--workers", "1", "--port", str(self.port), "--provider", "cpu"]
        log = (directory / "log").open("wb")
        self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self._await()

    def _await(self) -> None:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2).close()
                return
            except OSError:
                time.sleep(0.2)
        raise SystemExit("a server did not start")

    def load(self, script: Path, seconds: int) -> tuple[float, float]:
        """(requests a second, µs of the server's CPU a request)."""
        family = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        before = sum(sum(process.cpu_times()[:2]) for process in family)
        url = f"http://127.0.0.1:{self.port}/v1/classify"
        command = ["wrk", "-t1", "-c8", f"-d{seconds}s", "-s", str(script), url]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        if "Non-2xx" in report:
            raise SystemExit(f"the server refused requests:\n{report}")
        answered = re.search(r"(\d+) requests in", report)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", report)
        assert answered is not None
        assert rate is not None
        after = sum(sum(process.cpu_times()[:2]) for process in family)
        return float(rate[1]), (after - before) / int(answered[1]) * 1e6

    def status(self) -> dict[str, Any]:
        time.sleep(1.0)
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/status", timeout=5) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def _lua() -> str:
    """One image of the embedded bundle as JSON."""
    image = np.random.default_rng(0).integers(0, 256, (1, 28, 28, 1)).tolist()
    body = json.dumps({"instances": image}).replace(" ", "")
    return f"wrk.method = 'POST'\nwrk.headers['content-type'] = 'application/json'\nwrk.body = '{body}'\n"


# Output ---------------------------------------------------------------------------------------------------------------


def row(name: str, share: "float | np.floating[Any]", limit: float | None = ALPHA) -> None:
    note(name, f"{float(share):7.1%}", None if limit is None else float(share) <= limit)


def median(name: str, labels: list[int], longest: int, limit: int | None = None) -> None:
    middle = statistics.median(labels)
    shown = f"more than {longest:,}" if middle > longest else f"{middle:,.0f}"
    late = statistics.quantiles(labels, n=10)[-1]
    tail = f"(90 %: {'more than ' if late > longest else ''}{min(late, longest):,.0f})"
    note(name, f"{shown} {tail}", None if limit is None else middle <= limit)


def note(name: str, value: str, met: bool | None) -> None:
    print(f"  {name:<58} {value}{'' if met is None else '   ok' if met else '   MISSED'}", flush=True)


if __name__ == "__main__":
    main()
