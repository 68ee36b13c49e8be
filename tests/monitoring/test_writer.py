"""The ledger's writer: off the request path, bounded, honest about what it could not keep."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr

from calibration.policy import Policy
from service.gate import DecisionBatch
from service.ledger import Database
from service.ledger import writer as writer_module
from service.ledger.handle import Ledger
from service.ledger.keeping import stats
from service.ledger.tables import export_rows
from service.ledger.writer import Writer
from service.monitoring.tally import Group
from service.settings_monitoring import MonitoringSettings

POLICY = Policy(tau_id=0.0, tau_ood=0.0, number=1)


def _group(n: int, request_id: str = "r") -> Group:
    a = np.ones(n)
    accept, reason = POLICY.decide(a, a)
    label = np.zeros(n, dtype=np.int64)
    ids = [f"{request_id}-{i}" for i in range(n)]
    return Group.of([DecisionBatch(request_id, ids, time.time(), label, a, a, accept, reason, POLICY, 0.0, n)])


def _writer(ledger: Ledger, counted: "Counter[str]", capacity: int = 1000) -> Writer:
    def count(name: str, n: float) -> None:
        counted[name] += int(n)

    return Writer(ledger, capacity=capacity, flush_seconds=0.02, count=count)


def _until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_what_is_put_is_written_and_the_rest_at_the_end(tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    writer = _writer(Ledger(MonitoringSettings(), tmp_path, "b"), counted)
    writer.start()
    for i in range(5):
        writer.put(_group(10, f"r{i}"))
    _until(lambda: counted["written"] == 50)
    assert (writer.depth, writer.lag) == (0, 0.0)
    writer.put(_group(7, "last"))
    writer.stop(20)
    assert counted == {"written": 57}
    assert stats(Database(tmp_path / "ledger.sqlite"))["decisions"] == 57


def test_a_busy_moment_larger_than_the_queue_is_kept_in_part(tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    writer = _writer(Ledger(MonitoringSettings(), tmp_path, "b"), counted, capacity=25)
    writer.put(Group.of([batch for i in range(4) for batch in _group(10, f"r{i}").batches]))
    assert (writer.depth, counted) == (20, {"dropped": 20})
    writer.start()
    _until(lambda: counted["written"] == 20)
    writer.put(_group(40, "large"))  # a single request, and nothing else waits
    writer.stop(20)
    assert counted == {"written": 60, "dropped": 20}
    assert {row["request_id"] for row in export_rows(Database(tmp_path / "ledger.sqlite"))} == {"r0", "r1", "large"}


def test_a_full_queue_drops_and_counts(tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    writer = _writer(Ledger(MonitoringSettings(), tmp_path, "b"), counted, capacity=25)
    for i in range(4):  # not started: nothing leaves the queue
        writer.put(_group(10, f"r{i}"))
    assert writer.depth == 20
    assert counted == {"dropped": 20}
    assert writer.lag > 0
    writer.start()
    writer.stop(20)
    assert counted == {"dropped": 20, "written": 20}


def test_decisions_wait_while_the_database_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_PATIENCE", 0.05)
    monkeypatch.setattr("service.ledger.handle._RETRY_SECONDS", 0.05)
    away = tmp_path / "mount" / "ledger.sqlite"
    settings = MonitoringSettings(ledger_url=SecretStr(f"sqlite:///{away}"))
    counted: Counter[str] = Counter()
    writer = _writer(Ledger(settings, tmp_path, "b"), counted)
    writer.start()
    writer.put(_group(10))
    _until(lambda: counted["errors"] >= 2)
    assert writer.depth == 10
    away.parent.mkdir()
    _until(lambda: counted["written"] == 10)
    writer.stop(20)
    assert counted["dropped"] == 0


def test_what_cannot_be_written_by_the_end_is_counted(tmp_path: Path) -> None:
    settings = MonitoringSettings(ledger_url=SecretStr(f"sqlite:///{tmp_path}/no/such/place.sqlite"))
    counted: Counter[str] = Counter()
    writer = _writer(Ledger(settings, tmp_path, "b"), counted)
    writer.start()
    writer.put(_group(10))
    writer.stop(20)
    assert counted["dropped"] == 10
    assert counted["written"] == 0


def test_a_large_backlog_is_written_in_several_transactions(tmp_path: Path) -> None:
    counted: Counter[str] = Counter()
    writer = _writer(Ledger(MonitoringSettings(), tmp_path, "b"), counted, capacity=10_000)
    for i in range(5):
        writer.put(_group(1500, f"r{i}"))
    writer.start()
    writer.stop(30)
    assert counted == {"written": 7500}
