"""Real servers of two workers: totals over workers, kill -9 under load, and a real Prometheus that watches."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.echo import item
from support.local import ADMIN
from support.server import Server, free_port, serving
from support.traffic import draw_traffic, instances

from models.bundle import Bundle
from service.ledger import Database
from service.ledger.tables import export_rows

QUICK = {
    "workers": 2,
    "monitoring__enabled": "true",
    "monitoring__poll_seconds": 0.2,
    "monitoring__audit_share": 1.0,
}
WINDOW = 1.0  # seconds of decisions that may be lost, as GET /v1/status states it
ALERTS = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules" / "airlock.alerts.yml"
ADMIN_HEADER = {"Authorization": f"Bearer {ADMIN}"}


def _totals(url: str) -> dict[str, float]:
    """Every metric summed over its labels, asked on a new connection: either worker may answer."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=10).text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def _until(check: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return check()
        except (AssertionError, KeyError, httpx.TransportError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _send(url: str, requests: int, rng: np.random.Generator, size: int = 50, **drift: float) -> int:
    """Requests on connections of their own, so that both workers get some."""
    for _ in range(requests):
        body = {"instances": instances(draw_traffic(rng, size, **drift))}
        httpx.post(f"{url}/v1/classify", json=body, timeout=10).raise_for_status()
    return requests * size


@contextmanager
def _prometheus(directory: Path, url: str) -> Iterator[str]:
    """A real Prometheus that scrapes the server and has our alert rules, with no time to wait in them."""
    rules = yaml.safe_load(ALERTS.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    (directory / "rules.yml").write_text(yaml.safe_dump(rules))
    config = {
        "global": {"scrape_interval": "300ms", "scrape_timeout": "300ms", "evaluation_interval": "300ms"},
        "rule_files": [str(directory / "rules.yml")],
        "scrape_configs": [
            {"job_name": "airlock", "static_configs": [{"targets": [url.removeprefix("http://")]}]},
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus", f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={address}", "--log.level=error",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _until(lambda: _expect(httpx.get(f"http://{address}/-/ready").status_code, 200))
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


def _expect(found: Any, expected: Any) -> None:
    assert found == expected


def _query(prometheus: str, query: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{prometheus}/api/v1/query", params={"query": query}).json()
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def _firing(prometheus: str) -> set[str]:
    alerts = httpx.get(f"{prometheus}/api/v1/alerts").json()["data"]["alerts"]
    return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def test_prometheus_sees_all_workers_and_its_alert_fires_only_under_drift(bundle: Bundle, tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus (Debian package prometheus) is not installed")
    rng = np.random.default_rng(1)
    with serving(bundle, tmp_path / "run", state_dir=tmp_path / "state", **QUICK) as server:
        _until(lambda: _expect(len(server.workers()), 2))
        with _prometheus(tmp_path, server.url) as prometheus:
            sent = _send(server.url, 60, rng)
            _until(lambda: _expect(_value(prometheus, "sum(airlock_decisions_total)"), sent))
            _until(lambda: _expect(_value(prometheus, 'airlock_acceptance_rate{window="policy"}') > 0.5, True))
            time.sleep(1.5)  # several scrapes and evaluations
            assert _firing(prometheus) == set()
            assert len(_query(prometheus, 'airlock_alarm{job="airlock"} == 0')) == 5
            sent += _send(server.url, 60, rng, id_share=0.4)
            expected = {"AirlockAcceptanceShift", "AirlockScoreDrift"}
            _until(lambda: _expect(_firing(prometheus) >= expected, True))
            _until(lambda: _expect(_value(prometheus, "sum(airlock_decisions_total)"), sent))
            assert "AirlockSelectiveRiskBroken" not in _firing(prometheus)
            assert "AirlockDown" not in _firing(prometheus)


def _value(prometheus: str, query: str) -> float:
    found = _query(prometheus, query)
    assert found
    return float(found[0]["value"][1])


def test_totals_survive_a_killed_worker_and_a_restarted_server(bundle: Bundle, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    state = tmp_path / "state"
    with serving(bundle, tmp_path / "run", state_dir=state, **QUICK) as server:
        _until(lambda: _expect(len(server.workers()), 2))
        sent = _send(server.url, 30, rng)
        _until(lambda: _expect(_totals(server.url)["airlock_decisions_total"], sent))
        assert len(list((state / "monitor").glob("slot-*"))) == 2
        _until(lambda: _expect(_totals(server.url)["airlock_ledger_written_total"], sent))
        server.workers()[0].send_signal(signal.SIGKILL)
        _until(lambda: _expect(_totals(server.url)["airlock_decisions_total"], sent))
        sent += _until(lambda: _send(server.url, 1, rng))
        _until(lambda: _expect(_totals(server.url)["airlock_decisions_total"], sent))
        _until(lambda: _expect(_status(server)["monitors"]["decisions"], sent))  # somebody leads
        assert server.terminate() == 0
    with serving(bundle, tmp_path / "again", state_dir=state, **QUICK) as server:
        sent += _send(server.url, 4, rng)

        def continued() -> None:
            assert _totals(server.url)["airlock_decisions_total"] == sent
            status = _status(server)
            assert status["monitors"]["decisions"] == sent
            assert status["ledger"]["written"] == sent

        _until(continued)


def _status(server: Server) -> dict[str, Any]:
    document: dict[str, Any] = httpx.get(f"{server.url}/v1/status", timeout=10).json()
    return document


class _Load:
    """Callers that classify and give feedback as fast as they can, and remember what was acknowledged."""

    def __init__(self, url: str, callers: int) -> None:
        self.url = url
        self.decided: dict[str, float] = {}  # id -> when its answer had arrived
        self.labelled: dict[str, int] = {}  # id -> the label that was acknowledged
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(n,)) for n in range(callers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _call(self, caller: int) -> None:
        with httpx.Client(base_url=self.url, timeout=10) as client:
            for number in range(1_000_000):
                if self._stopping.is_set():
                    return
                ids = [f"c{caller}-{number}-{k}" for k in range(4)]
                try:
                    answer = client.post("/v1/classify", json={"instances": [item(9, 9, 1)] * 4, "ids": ids})
                    assert answer.status_code == 200
                    self.decided |= dict.fromkeys(ids, time.time())
                    if number % 4 == 0:
                        label = number % 3
                        given = client.post("/v1/feedback", json={"id": ids[0], "label": label}, headers=ADMIN_HEADER)
                        assert given.status_code == 200
                        self.labelled[ids[0]] = label
                except httpx.TransportError:
                    return  # the server is gone


def test_kill_9_under_load_loses_no_feedback_and_no_decision_older_than_the_window(
    bundle: Bundle, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with serving(bundle, tmp_path / "run", state_dir=state, **QUICK) as server:
        _until(lambda: _expect(len(server.workers()), 2))
        load = _Load(server.url, callers=4)
        load.start()
        _until(lambda: _expect(len(load.labelled) > 40, True))
        family = [psutil.Process(server.process.pid), *psutil.Process(server.process.pid).children(recursive=True)]
        behind = _status(server)["ledger"]["lag_seconds"]  # a disk that is busy with other things widens the window
        killed = time.time()
        for process in family:
            os.kill(process.pid, signal.SIGKILL)
        server.process.wait()
        load.stop()
    database = Database(state, create=False)
    kept = {row["id"]: row for row in export_rows(database)}
    database.close()
    assert len(load.decided) > 500
    missing = [id for id in load.labelled if kept.get(id, {}).get("label") != load.labelled[id]]
    assert missing == []  # every acknowledged label is there, with its decision
    settled = [id for id, at in load.decided.items() if at < killed - WINDOW - behind]
    assert [id for id in settled if id not in kept] == []
    with serving(bundle, tmp_path / "again", state_dir=state, **QUICK) as server:

        def continued() -> None:
            monitors = _status(server)["monitors"]
            assert monitors["decisions"] >= len(settled)
            assert monitors["selective_risk"]["trials"] >= len(load.labelled)

        _until(continued)
