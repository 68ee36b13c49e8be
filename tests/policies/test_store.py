"""The store numbers, switches and rolls back; writers at once and sudden death leave it readable."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.errors import PolicyError, StoreError
from calibration.policy import Policy
from calibration.store import PolicyStore

ROOT = Path(__file__).resolve().parents[2]


def policy(**changes: object) -> Policy:
    return Policy.model_validate({"tau_id": 0.5, "tau_ood": -1.25, **changes})


def test_policies_are_numbered_in_the_order_they_come(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path / "policies")
    assert [store.add(policy()).number for _ in range(3)] == [1, 2, 3]
    assert sorted(p.name for p in store.directory.glob("*.json")) == ["0001.json", "0002.json", "0003.json"]
    assert [each.number for each in store.list()] == [1, 2, 3]
    assert store.get(2).name == "0002"
    assert store.active() is None
    assert store.token() is None


def test_a_stored_policy_is_never_rewritten(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    store.add(policy())
    before = (tmp_path / "0001.json").read_bytes()
    store.add(policy(tau_id=9.0))
    store.activate(1)
    store.activate(2)
    assert (tmp_path / "0001.json").read_bytes() == before


def test_numbers_go_on_after_9999(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    (tmp_path / "9999.json").write_bytes(policy(number=9999).to_json())
    assert store.add(policy()).number == 10000
    assert [each.number for each in store.list()] == [9999, 10000]


def test_activation_changes_the_token_every_time(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    for _ in range(3):
        store.add(policy())
    tokens = []
    for number in (1, 2, 1, 1, 3):
        assert store.activate(number).number == number
        assert store.active() == store.get(number)
        tokens.append(store.token())
    assert len(set(tokens)) == len(tokens)
    assert store.token() == store.token()


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.sampled_from([1, 2, 3, "back"]), max_size=12))
def test_rollback_retraces_the_activations(tmp_path_factory: pytest.TempPathFactory, steps: list[object]) -> None:
    store = PolicyStore(tmp_path_factory.mktemp("store"))
    for _ in range(3):
        store.add(policy())
    trail: list[int] = []
    for step in steps:
        if step == "back":
            if len(trail) < 2:
                with pytest.raises(StoreError, match="nothing to roll back"):
                    store.rollback()
                continue
            trail.pop()
            assert store.rollback().number == trail[-1]
        else:
            store.activate(int(str(step)))
            if not trail or trail[-1] != step:
                trail.append(int(str(step)))
        active = store.active()
        assert active is not None
        assert active.number == trail[-1]


def test_a_rejected_policy_needs_force_and_the_force_is_recorded(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    store.add(policy(status="validated"))
    store.add(policy(status="rejected", status_reasons=["claimed risk ≤ 1 %, held out 3 %"]))
    store.activate(1, force=True)
    with pytest.raises(StoreError, match=r"held out 3 %.*--force"):
        store.activate(2)
    assert store.pointer().active == 1  # type: ignore[union-attr]
    store.activate(2, force=True, note="demo tonight")
    assert [(s.number, s.forced, s.status, s.note) for s in store.history()] == [
        (1, False, "validated", None),
        (2, True, "rejected", "demo tonight"),
    ]


def test_another_bundles_policy_is_neither_stored_nor_loaded(tmp_path: Path) -> None:
    ours = PolicyStore(tmp_path, bundle="a" * 64)
    assert ours.add(policy()).bundle == "a" * 64
    with pytest.raises(PolicyError, match="bundle bbbbbbbbbbbb"):
        ours.add(policy(bundle="b" * 64))
    theirs = PolicyStore(tmp_path, bundle="b" * 64)
    for attempt in (lambda: theirs.get(1), theirs.list, lambda: theirs.activate(1)):
        with pytest.raises(PolicyError, match="made for bundle aaaaaaaaaaaa"):
            attempt()
    assert theirs.active() is None


def test_what_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path / "s")
    with pytest.raises(StoreError, match=r"no policy 7 .*none yet"):
        store.get(7)
    store.add(policy())
    with pytest.raises(StoreError, match=r"no policy 7 .*there are: 1"):
        store.activate(7)
    store.activate(1)
    (store.directory / "active").write_text("{half")
    with pytest.raises(StoreError, match="damaged"):
        store.active()
    store.activate(1)
    assert store.active() == store.get(1)
    (store.directory / "0001.json").write_text("")
    with pytest.raises(PolicyError, match=r"0001\.json is not a valid policy"):
        store.list()


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write in the policy store"):
        PolicyStore(tmp_path / "file" / "policies").add(policy())


def test_leftovers_of_killed_writers_are_swept_once_they_are_old(tmp_path: Path) -> None:
    old = [tmp_path / ".0001.json.aaaa", tmp_path / ".active.aaaa"]
    new = [tmp_path / ".0001.json.bbbb", tmp_path / ".active.bbbb"]
    for leftover in (*old, *new):
        leftover.write_text("{")
    for leftover in old:
        os.utime(leftover, (0, 0))
    store = PolicyStore(tmp_path)
    store.add(policy())
    assert not any(leftover.exists() for leftover in old)
    assert all(leftover.exists() for leftover in new)
    assert len(store.list()) == 1


def test_without_hard_links_numbers_stay_unique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", unsupported)
    store = PolicyStore(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda _: store.add(policy()).number, range(12)))
    assert sorted(numbers) == list(range(1, 13))  # type: ignore[type-var]


WRITER = """
import sys
from calibration.policy import Policy
from calibration.store import PolicyStore

store = PolicyStore(sys.argv[1])
count = int(sys.argv[2])
print("ready", flush=True)
while count:
    number = store.add(Policy(tau_id=0.1, tau_ood=0.2, note="x" * 20000)).number
    store.activate(number)
    print(number, flush=True)
    count -= 1
"""


def start_writer(directory: Path, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, 12) for _ in range(3)]
    written = [int(line) for writer in writers for line in writer.communicate(timeout=120)[0].split()[1:]]
    assert sorted(written) == list(range(1, 37))
    store = PolicyStore(tmp_path)
    assert len(store.list()) == 36
    assert sorted(switch.number for switch in store.history()) == list(range(1, 37))


def test_kill_9_at_any_point_leaves_a_readable_store(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    rng = random.Random(0)
    acknowledged: list[int] = []
    for _ in range(8):
        writer = start_writer(tmp_path, -1)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.0, 0.08))
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.communicate()[0].split("\n")[:-1]]
        policies = store.list()
        assert [each.number for each in policies] == list(range(1, len(policies) + 1))
        assert set(acknowledged) <= {each.number for each in policies}
        assert set(acknowledged) <= {switch.number for switch in store.history()}
        active = store.active()
        assert (active is None) == (not store.history())
    assert acknowledged
    assert store.add(policy()).number == len(policies) + 1
