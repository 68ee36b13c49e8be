"""Shared counters: nothing lost or torn when workers come, go and are killed."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from models.bundle import Bundle
from service import launch
from service.monitoring.board import Board, read_board
from service.monitoring.layout import PLAIN_BUCKETS, Layout
from service.monitoring.slots import Slot, read_slots
from service.monitoring.station import Station, StationError, await_free, check_usable
from service.settings import Settings

LAYOUT = Layout(("cat", "dog"), {"s_id": PLAIN_BUCKETS, "s_ood": (0.0,)})
OTHER = Layout(("cat",), {"s_id": PLAIN_BUCKETS, "s_ood": (0.0,)})


def test_only_published_values_are_seen(tmp_path: Path) -> None:
    slot = Slot.claim(tmp_path, LAYOUT)
    slot.fields["decided"] += 5
    assert read_slots(tmp_path, LAYOUT)["slot-000"].sum() == 0
    slot.publish()
    slot.fields["decided"] += 1
    assert read_slots(tmp_path, LAYOUT)["slot-000"].sum() == 5


def test_mapped_files_have_their_room_on_disk(tmp_path: Path) -> None:
    """A page without room would kill the worker that first writes to it once the disk is full."""
    Slot.claim(tmp_path, LAYOUT)
    Board(tmp_path / "board")
    for path in (tmp_path / "slot-000", tmp_path / "board"):
        found = path.stat()
        assert found.st_blocks * 512 >= found.st_size > 0


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StationError, match="cannot be written: No space left"):
        Station(tmp_path / "state" / "monitor", LAYOUT, server="a")
    with pytest.raises(StationError, match="cannot be written: No space left"):
        check_usable(tmp_path / "state" / "monitor")


def test_a_free_slot_is_taken_over_with_its_counts(tmp_path: Path) -> None:
    first, second = Slot.claim(tmp_path, LAYOUT), Slot.claim(tmp_path, LAYOUT)
    assert first.path != second.path
    first.fields["decided"] += 7
    first.publish()
    first.close()
    heir = Slot.claim(tmp_path, LAYOUT)
    assert heir.path == first.path
    heir.fields["decided"] += 1
    heir.publish()
    assert sum(values.sum() for values in read_slots(tmp_path, LAYOUT).values()) == 8


def test_a_slot_of_another_layout_starts_from_zero_and_is_not_read(tmp_path: Path) -> None:
    slot = Slot.claim(tmp_path, OTHER)
    slot.fields["decided"] += 7
    slot.publish()
    assert read_slots(tmp_path, LAYOUT) == {}
    slot.close()
    assert Slot.claim(tmp_path, LAYOUT).values.sum() == 0


_WRITER = """
import sys
from pathlib import Path
from service.monitoring.layout import Layout
from service.monitoring.slots import Slot
layout = Layout.from_document(eval(sys.argv[2]))
slot = Slot.claim(Path(sys.argv[1]), layout)
while True:
    slot.values += 1.0
    slot.publish()
"""


def test_a_reader_never_sees_a_torn_vector_even_after_a_kill(tmp_path: Path) -> None:
    """A process that only writes, where all numbers of a whole vector are equal."""
    command = [sys.executable, "-c", _WRITER, str(tmp_path), repr(LAYOUT.document())]
    writer = subprocess.Popen(command, cwd=Path(__file__).parents[2])
    try:
        deadline, seen = time.monotonic() + 30, 0
        while seen < 2000 and time.monotonic() < deadline:
            for values in read_slots(tmp_path, LAYOUT).values():
                assert (values == values[0]).all()
                seen += values[0] > 0
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert seen == 2000
    left = read_slots(tmp_path, LAYOUT)["slot-000"]
    assert (left == left[0]).all()
    heir = Slot.claim(tmp_path, LAYOUT)
    assert (heir.values == left).all()


def test_workers_of_one_server_share_the_first_ones_layout(tmp_path: Path) -> None:
    first = Station(tmp_path, LAYOUT, server="a")
    second = Station(tmp_path, OTHER, server="a")
    assert second.layout == LAYOUT
    assert [first.lead(), second.lead(), first.lead()] == [True, False, True]
    first.leave()
    assert second.lead()
    second.leave()


def test_another_server_is_refused_while_one_lives_and_welcome_afterwards(tmp_path: Path) -> None:
    first = Station(tmp_path / "state", LAYOUT, server="a")
    with pytest.raises(StationError, match="in use by another server"):
        Station(tmp_path / "state", LAYOUT, server="b")
    first.slot.fields["decided"] += 3
    first.slot.publish()
    first.leave()
    second = Station(tmp_path / "state", LAYOUT, server="b")
    assert second.slot.fields["decided"][0] == 3  # the same things are counted: go on
    second.leave()
    third = Station(tmp_path / "state", OTHER, server="c")
    assert third.slot.values.sum() == 0
    third.leave()


def test_a_server_is_refused_before_it_starts_while_another_uses_its_state(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "_STATE_SECONDS", 0.3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    settings = Settings(bundle=bundle.path, state_dir=tmp_path / "state", provider="cpu")
    first = Station(tmp_path / "state" / "monitor", LAYOUT, server="a")
    with pytest.raises(StationError, match=f"{tmp_path / 'state'} is in use by another server; give every server"):
        launch.prepare(settings)
    assert not list(tmp_path.glob("airlock-*"))
    first.leave()
    with monkeypatch.context() as environment:
        environment.setattr(os, "environ", dict(os.environ))
        assert launch.prepare(settings).settings.state_dir == tmp_path / "state"


def test_a_server_waits_for_the_workers_of_a_killed_one(tmp_path: Path) -> None:
    leaving = Station(tmp_path, LAYOUT, server="a")
    threading.Timer(0.5, leaving.leave).start()
    began = time.monotonic()
    await_free(tmp_path, 20.0)
    assert 0.4 < time.monotonic() - began < 15


def _lead_and_wait(directory: str, ready: "multiprocessing.synchronize.Event") -> None:
    Station(Path(directory), LAYOUT, server="a").lead()
    ready.set()
    time.sleep(60)


def test_the_lead_of_a_killed_worker_is_free_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    leader = context.Process(target=_lead_and_wait, args=(str(tmp_path), ready))
    leader.start()
    assert ready.wait(30)
    follower = Station(tmp_path, LAYOUT, server="a")
    assert not follower.lead()
    assert leader.pid is not None
    os.kill(leader.pid, signal.SIGKILL)
    leader.join()
    assert follower.lead()
    follower.leave()


def test_a_damaged_file_means_start_afresh(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert read_board(path) is None
    path.write_bytes(b"\xff" * 100)
    assert read_board(path) is None
    board = Board(path)
    assert read_board(path) is None
    board.write({"a": np.array([1.0])}, durable=True)
    assert read_board(path) == {"a": [1.0]}


def test_a_document_cut_short_leaves_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "state"
    board = Board(path)
    for number in range(5):
        board.write({"number": number})
        assert read_board(path) == {"number": number}
    content = bytearray(path.read_bytes())
    newest = content.index(b'{"number":4}')
    content[newest + 10] ^= 1
    path.write_bytes(content)
    assert read_board(path) == {"number": 3}
    heir = Board(path)
    heir.write({"number": 5})
    assert read_board(path) == {"number": 5}
    with pytest.raises(ValueError, match="does not fit"):
        heir.write({"large": "x" * 2_000_000})
    assert read_board(path) == {"number": 5}


def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StationError, match="cannot be written"):
        Station(tmp_path / "file" / "monitor", LAYOUT, server="a")
