"""The thread that writes decisions: a bounded queue in front, one transaction a group behind, never in anyone's way."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from service.ledger.handle import Ledger
from service.ledger.writing import Kept, append, rows
from service.monitoring.tally import Group

logger = logging.getLogger("airlock.ledger")

_GROUP = 2000  # rows a transaction holds at most: others want the write lock too
_PATIENCE = 5.0  # seconds between attempts while the database cannot be written
_LOG_EVERY = 60.0


class Writer:
    """Takes groups of decisions and writes them; drops and counts what the queue cannot hold.

    At most `flush_seconds` plus the duration of a transaction lie between a decision and its place on disk, as
    long as the database keeps up; `lag` says how old the oldest waiting decision is.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        capacity: int,
        flush_seconds: float,
        count: Callable[[str, float], None],
        inputs: Kept = "none",
    ) -> None:
        """`count(name, n)` is told of rows `written` and `dropped`, and of failed attempts (`errors`)."""
        self._ledger = ledger
        self._capacity, self._flush_seconds, self._count = capacity, flush_seconds, count
        self._inputs = inputs
        self._groups: deque[Group] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._sources: dict[int, int] = {}
        self._logged = float("-inf")
        self._thread = threading.Thread(target=self._run, name="airlock-ledger", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, group: Group) -> None:
        """Queue a group; its requests that do not fit are dropped and counted."""
        with self._lock:
            fitting = _fitting(group, self._waiting, self._capacity)
            if fitting is not None:
                self._groups.append(fitting)
                self._waiting += len(fitting)
                self._wake.set()
        dropped = len(group) - (0 if fitting is None else len(fitting))
        if dropped:
            self._count("dropped", dropped)

    @property
    def depth(self) -> int:
        """Decisions that wait."""
        return self._waiting

    @property
    def lag(self) -> float:
        """Age of the oldest decision that waits, in seconds."""
        with self._lock:
            return max(0.0, time.time() - self._groups[0].batches[0].time) if self._groups else 0.0

    def stop(self, seconds: float) -> None:
        """Write what waits, then end; what cannot be written in time is counted as dropped."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(seconds)
        if self._waiting:
            self._count("dropped", self._waiting)

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._stopping.wait(self._flush_seconds)  # let a group gather: one commit, not many
            self._wake.clear()
            while self._groups:
                if not self._write_some() and self._stopping.wait(_PATIENCE):
                    return
            if self._stopping.is_set():
                return

    def _write_some(self) -> bool:
        """One transaction with the oldest groups; they leave the queue when it is on disk."""
        with self._lock:
            groups = _first_groups(self._groups)
        try:
            database, audit = self._ledger.open(), self._ledger.audit()
            pending = [row for group in groups for row in rows(group, self._source(group), audit, self._inputs)]
            append(database, pending)
        except Exception as fault:  # a full disk, a database that is away: keep, count, try again
            self._failed(fault)
            return False
        size = sum(len(group) for group in groups)
        with self._lock:
            for _ in groups:
                self._groups.popleft()
            self._waiting -= size
        self._count("written", size)
        return True

    def _source(self, group: Group) -> int:
        policy = group.policy.number or 0
        if policy not in self._sources:
            self._sources[policy] = self._ledger.source(policy)
        return self._sources[policy]

    def _failed(self, fault: Exception) -> None:
        self._count("errors", 1)
        now = time.monotonic()
        if now - self._logged > _LOG_EVERY:
            self._logged = now
            logger.error("decisions cannot be written to the ledger and wait: %s", " ".join(str(fault).split())[:300])


def _fitting(group: Group, waiting: int, capacity: int) -> Group | None:
    """The first requests of a group that the queue has room for: a busy half second may hold more than the queue.

    An empty queue takes any single request, however many items it has, or that request would never be recorded.
    """
    if waiting + len(group) <= capacity:
        return group
    size, taken = waiting, 0
    for batch in group.batches:
        if size + len(batch) > capacity and size > 0:
            break
        size, taken = size + len(batch), taken + 1
    return Group.of(group.batches[:taken]) if taken else None


def _first_groups(groups: deque[Group]) -> list[Group]:
    taken: list[Group] = []
    size = 0
    for group in groups:
        if taken and size + len(group) > _GROUP:
            break
        taken.append(group)
        size += len(group)
    return taken
