"""Read → decode → infer → hand over, all at once and in order, with a bounded number of batches in between.

Inference runs in threads that share one session: ONNX Runtime lets go of the interpreter lock, a thread that waits
costs nothing, and each run is single-threaded, so the scores do not depend on how many there are.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Event, Semaphore, Thread

from models.data import Batch, Block, Source
from service.batch.errors import JobError
from service.batch.scoring import Scores

_END = None
_Item = Future[Scores] | None


@dataclass(frozen=True)
class Flow:
    """How much runs at the same time."""

    batch: int
    workers: int
    decoders: int
    depth: int  # batches whose inputs are in memory at once


class Pipeline:
    """Scores the rows of a source in order; use it once, as a context."""

    def __init__(self, source: Source, infer: Callable[[Batch], Scores], flow: Flow, ahead: int = 64) -> None:
        self._source, self._infer, self._flow = source, infer, flow
        self._slots = Semaphore(flow.depth)
        self._queue: Queue[_Item] = Queue(maxsize=flow.depth + ahead)
        self._cancelled = Event()
        self._limit: int | None = None
        self._decoding = ThreadPoolExecutor(flow.decoders, "decode")
        self._inferring = ThreadPoolExecutor(flow.workers, "infer")
        self._reader: Thread | None = None

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *_: object) -> None:
        """Stop whatever still runs; only a batch already being computed is waited for."""
        self._cancelled.set()
        self._slots.release()
        while self._reader is not None and self._reader.is_alive():
            with suppress(Empty):
                self._queue.get_nowait()
            self._reader.join(0.01)
        self._decoding.shutdown(cancel_futures=True)
        self._inferring.shutdown(cancel_futures=True)

    def stop_at(self, row: int) -> None:
        """Read no further than this row; what was read before is still delivered."""
        self._limit = row

    def run(self, spans: Iterable[tuple[int, int]]) -> Iterator[Scores]:
        """The scores of these runs of rows, batch by batch, in order."""
        self._reader = Thread(target=self._read, args=(list(spans),), name="read", daemon=True)
        self._reader.start()
        while (item := self._queue.get()) is not _END:
            yield item.result()

    def _read(self, spans: list[tuple[int, int]]) -> None:
        try:
            for start, stop in spans:
                for block in self._source.blocks(self._flow.batch, start, stop):
                    if not self._submit(block):
                        return
        except OSError as fault:
            self._fail(JobError(f"Reading stopped ({fault}); what was finished before is kept."))
        except BaseException as fault:
            self._fail(fault)
        finally:
            self._queue.put(_END)

    def _fail(self, fault: BaseException) -> None:
        failed: Future[Scores] = Future()
        failed.set_exception(fault)
        self._queue.put(failed)

    def _submit(self, block: Block) -> bool:
        self._slots.acquire()
        if self._cancelled.is_set() or (self._limit is not None and block.rows.start >= self._limit):
            return False
        decoded = self._decoding.submit(self._source.decode, block)
        self._queue.put(self._inferring.submit(self._score, decoded))
        return True

    def _score(self, decoded: "Future[Batch]") -> Scores:
        try:
            return self._infer(decoded.result())
        finally:
            self._slots.release()


def contiguous(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Neighbouring spans as one, so that files are read straight through."""
    held: tuple[int, int] | None = None
    for start, stop in spans:
        if held is not None and held[1] == start:
            held = (held[0], stop)
            continue
        if held is not None:
            yield held
        held = (start, stop)
    if held is not None:
        yield held
