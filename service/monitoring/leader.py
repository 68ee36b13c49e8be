"""One worker of a server evaluates the monitors of all; whoever holds the lock does, the next one when it is gone."""

import logging
import threading
import time
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.gate import ServiceContext
from service.ledger.engine import LedgerError
from service.ledger.feedback import audit_totals
from service.ledger.handle import Ledger
from service.ledger.keeping import prune
from service.monitoring.alarms import KINDS
from service.monitoring.board import Board, read_board
from service.monitoring.counts import Counts
from service.monitoring.layout import MONITOR_SIZES
from service.monitoring.station import Station
from service.monitoring.watch import Watch

logger = logging.getLogger("airlock.monitor")

STATE, STATUS = "state", "status"
_KEEP_SECONDS, _DURABLE_SECONDS = 5.0, 30.0
_PRUNE_SECONDS = 60.0


class Leader:
    """Sums the workers' counts, feeds the monitors, publishes the result and keeps the state.

    The state names, for every slot, the counts that were taken in already, so that a successor goes on exactly where
    this process stopped, whatever stopped it, and a policy that returns is not judged by its past once more.
    """

    def __init__(self, context: ServiceContext, station: Station, ledger: Ledger | None) -> None:
        self._context, self._station, self._ledger = context, station, ledger
        self._settings = context.settings.monitoring
        self._watch: Watch | None = None
        self._seen: dict[str, NDArray[np.float64]] = {}
        self._leading = False
        self._boards: dict[str, Board] = {}
        self._source: tuple[int, int] | None = None  # the policy's number and what stands for it in the ledger
        self._durable = self._pruned = time.monotonic()
        self._kept = float("-inf")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="airlock-watch", daemon=True)
        self._housekeeper: threading.Thread | None = None
        first, last = (self._station.layout.fields[name] for name in (*MONITOR_SIZES,)[:: len(MONITOR_SIZES) - 1])
        self._part = slice(first.start, last.stop)

    def start(self) -> None:
        """Begin; whether there is something to do shows at every poll."""
        self._thread.start()

    def stop(self) -> None:
        """Evaluate once more and keep the state for the next start."""
        self._stopping.set()
        self._thread.join()
        if self._leading:
            self._poll(durable=True)
        for board in self._boards.values():
            board.close()

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.poll_seconds):
            try:
                self._leading = self._station.lead()
                if self._leading:
                    self._poll(durable=time.monotonic() - self._durable > _DURABLE_SECONDS)
            except OSError as fault:  # a full disk: the alarms are told all the same, and the slots hold the counts
                logger.error("the monitors' state cannot be kept: %s", fault.strerror)
            except Exception:  # the next poll may do better
                logger.exception("the monitors could not be evaluated")

    def _poll(self, *, durable: bool) -> None:
        policy = self._context.gate.view.policy
        if policy is None:
            return
        now = time.time()
        if self._watch is None or self._watch.policy.number != policy.number:
            self._watch = self._begin(now)
        before = {kind for kind in KINDS if self._watch.alarm(kind).raised}
        self._watch.take(self._fresh(policy.number), now)
        self._hear(now)
        self._obey(now)
        changed = _tell(self._watch, before)
        self._publish(now, keep=durable or changed, durable=durable)
        self._keep_house()

    def _begin(self, now: float) -> Watch:
        """The monitors of the policy that judges now: those of the last run if they watched the same policy."""
        policy = self._context.gate.view.policy
        assert policy is not None  # the caller has looked
        watch = Watch(policy, self._settings, now)
        state = read_board(self._station.directory / STATE) if self._watch is None else None
        if state is None:
            return watch
        try:
            # Also for another policy: a slot may still hold what was counted under this one before, and was seen.
            self._seen = {name: np.array(values) for name, values in state["seen"].items()}
            if (state["bundle"], state["policy"]) == (self._context.bundle.hash, policy.number):
                watch.resume(state["watch"])
        except (KeyError, TypeError, ValueError):
            logger.warning("the monitors' state cannot be read; they start afresh")
            return Watch(policy, self._settings, now)
        return watch

    def _fresh(self, number: int | None) -> Counts:
        """What all workers decided under the policy since the last look."""
        total = Counts.nothing()
        names = {name: part for name, part in self._station.layout.fields.items() if name in MONITOR_SIZES}
        for slot, values in self._station.counts().items():
            part = values[self._part]
            if values[names["policy"]][0] != number:
                continue
            seen = self._seen.get(slot)
            # Another epoch: the worker has begun to count from zero since.
            known = np.zeros_like(part) if seen is None or seen.shape != part.shape or seen[0] != part[0] else seen
            change = part - known
            fields = {
                name: change[where.start - self._part.start : where.stop - self._part.start]
                for name, where in names.items()
            }
            total += Counts.from_fields(fields)
            self._seen[slot] = part
        return total

    def _hear(self, now: float) -> None:
        if self._ledger is None or self._watch is None:
            return
        try:
            number = self._watch.policy.number or 0
            if self._source is None or self._source[0] != number:
                self._source = (number, self._ledger.source(number))
            self._watch.hear(*audit_totals(self._ledger.open(), self._source[1]), now)
        except LedgerError:
            pass  # the writer reports it; labels are heard of when the ledger is back
        except Exception as fault:
            logger.warning("labels cannot be counted: %s", " ".join(str(fault).split())[:300])

    def _obey(self, now: float) -> None:
        """Clear what an operator has asked to clear, through whichever worker."""
        for kind in KINDS:
            request = self._station.directory / f"clear-{kind}"
            if request.exists() and self._watch is not None:
                self._watch.clear(kind, now)
                request.unlink(missing_ok=True)

    def _publish(self, now: float, *, keep: bool, durable: bool) -> None:
        """Show the status; keep the state now and then: what is not in it yet is still in the slots."""
        assert self._watch is not None  # the caller has begun
        identity: dict[str, Any] = {"bundle": self._context.bundle.hash, "policy": self._watch.policy.number}
        self._board(STATUS).write(identity | {"at": now, "monitors": self._watch.status(now)})
        if keep or time.monotonic() - self._kept > _KEEP_SECONDS:
            state = identity | {"watch": self._watch.state(), "seen": self._seen}
            self._board(STATE).write(state, durable=durable)
            self._kept = time.monotonic()
        if durable:
            self._durable = time.monotonic()

    def _board(self, name: str) -> Board:
        """Only the leader opens the boards to write."""
        if name not in self._boards:
            self._boards[name] = Board(self._station.directory / name)
        return self._boards[name]

    def _keep_house(self) -> None:
        """Prune the ledger now and then, without keeping the monitors waiting."""
        busy = self._housekeeper is not None and self._housekeeper.is_alive()
        if self._ledger is None or busy or time.monotonic() - self._pruned < _PRUNE_SECONDS:
            return
        self._pruned = time.monotonic()
        self._housekeeper = threading.Thread(target=_prune, args=(self._ledger,), name="airlock-prune", daemon=True)
        self._housekeeper.start()


def _prune(ledger: Ledger) -> None:
    try:
        deleted = prune(ledger.open(), ledger.limits())
    except Exception as fault:
        logger.warning("the ledger could not be pruned: %s", " ".join(str(fault).split())[:300])
    else:
        if deleted:
            logger.info("%d decisions beyond the ledger's limits are deleted", deleted)


def _tell(watch: Watch, before: set[str]) -> bool:
    """Log alarms as they come and go; whether any did."""
    after = {kind for kind in KINDS if watch.alarm(kind).raised}
    for kind in after - before:
        logger.warning("alarm %s is raised: %s", kind, orjson.dumps(watch.alarm(kind).evidence).decode())
    for kind in before - after:
        logger.info("alarm %s is cleared", kind)
    return after != before
