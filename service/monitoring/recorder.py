"""The observer of a worker: takes decisions in passing, counts them in groups, hands them to the ledger's writer."""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from contextlib import suppress

from calibration.errors import CalibrationError
from service.gate import DecisionBatch, PolicyView, ServiceContext
from service.ledger.handle import Ledger
from service.ledger.writer import Writer
from service.monitoring.desk import Desk
from service.monitoring.layout import PLAIN_BUCKETS, Layout
from service.monitoring.leader import Leader
from service.monitoring.reference import SCORES, score_cuts
from service.monitoring.station import Station, StationError
from service.monitoring.tally import Tally, by_policy

logger = logging.getLogger("airlock.monitor")

TICK_SECONDS = 0.5
_JOIN_SECONDS = 20.0  # a killed server's workers need some seconds to notice and leave
_MOST_WAITING = 200_000
_INPUT_BYTES = 256 * 1024 * 1024  # of inputs that wait for the ledger at most


class Recorder:
    """Watches one worker's decisions.

    On the event loop a decision costs one append. A thread counts what has gathered twice a second: numpy calls
    are paid for once a group, not once a request.
    """

    def __init__(self, context: ServiceContext) -> None:
        self.context = context
        self.settings = context.settings.monitoring
        self.ledger = Ledger(self.settings, context.state_dir, context.bundle.hash) if self.settings.ledger else None
        self.desk = Desk(self.ledger)
        self._batches: deque[DecisionBatch] = deque()
        self._missed = 0
        self._counting = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="airlock-monitor", daemon=True)
        self.station: Station
        self.writer: Writer | None = None

    async def start(self) -> None:
        """Take a seat among the server's workers and begin to count."""
        self.station = await asyncio.to_thread(self._join)
        self._fields = self.station.slot.fields
        self._tally = Tally(self.station.layout, self._fields, self.settings.near_mass)
        for gauge in ("ledger_queue", "ledger_lag", "in_flight"):
            self._fields[gauge][:] = 0.0  # left behind by the slot's last owner
        if self.ledger is not None:
            self.writer = Writer(
                self.ledger,
                capacity=self._capacity(),
                flush_seconds=self.settings.ledger_flush_seconds,
                count=self._count,
                inputs=self.settings.ledger_inputs,
            )
            self.writer.start()
        self._leader = Leader(self.context, self.station, self.ledger)
        self._leader.start()
        self._thread.start()

    def _capacity(self) -> int:
        """Decisions that may wait; fewer where their inputs wait with them, so that memory stays bounded."""
        if self.settings.ledger_inputs == "none":
            return self.settings.ledger_queue
        size = self.context.bundle.manifest.input.example().nbytes
        return max(1, min(self.settings.ledger_queue, _INPUT_BYTES // max(1, size)))

    def observe(self, batch: DecisionBatch) -> None:
        """Take a decision in passing."""
        if len(self._batches) < _MOST_WAITING:
            self._batches.append(batch)
        else:
            self._missed += len(batch)

    def policy_changed(self, view: PolicyView) -> None:
        """Nothing to do: every batch carries the policy that judged it, and the leader reads the view."""

    async def stop(self) -> None:
        """Count and write what is left."""
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        if self.writer is not None:
            self.writer.stop(self.context.settings.shutdown_seconds / 2)
        self._tick()
        self._leader.stop()
        self.desk.close()
        if self.ledger is not None:
            self.ledger.close()
        self.station.leave()

    def _join(self) -> Station:
        """A seat in the state directory; that of a server just killed is free after some seconds."""
        directory = self.context.state_dir / "monitor"
        server = os.environ.get("PROMETHEUS_MULTIPROC_DIR", f"process {os.getppid()}")
        deadline = time.monotonic() + _JOIN_SECONDS
        while True:
            try:
                return Station(directory, self._layout(), server=server)
            except StationError as refusal:
                if time.monotonic() > deadline:
                    logger.error("%s", refusal)
                    raise
            time.sleep(0.5)

    def _layout(self) -> Layout:
        """Buckets at the active policy's calibration quantiles; a server keeps its buckets, as Prometheus wants it."""
        policy = None
        with suppress(CalibrationError):  # a damaged store is reported by the gate
            policy = self.context.store.active()
        classes = tuple(self.context.bundle.manifest.classes[: self.settings.top_classes])
        buckets: dict[str, tuple[float, ...]] = {}
        for score in SCORES:
            cuts = () if policy is None else score_cuts(policy, score)[0].tolist()
            buckets[score] = tuple(sorted({float(f"{cut:.6g}") for cut in cuts})) or PLAIN_BUCKETS
        return Layout(classes, buckets)

    def _run(self) -> None:
        while not self._stopping.wait(TICK_SECONDS):
            try:
                self._tick()
            except Exception:  # counting goes on with the next group
                logger.exception("decisions could not be counted")
        self._tick()

    def _tick(self) -> None:
        batches = [self._batches.popleft() for _ in range(len(self._batches))]
        groups = by_policy(batches)
        with self._counting:
            for group in groups:
                self._tally.add(group)
            self._fields["missed"] += self._missed
            self._missed = 0
            self._fields["in_flight"][0] = self.context.admission.in_flight
            if self.writer is not None:
                self._fields["ledger_queue"][0], self._fields["ledger_lag"][0] = self.writer.depth, self.writer.lag
            self.station.slot.publish()
        if self.writer is not None:
            for group in groups:
                self.writer.put(group)

    def _count(self, name: str, number: float) -> None:
        """What the writer tells of its work."""
        with self._counting:
            self._fields[f"ledger_{name}"] += number
