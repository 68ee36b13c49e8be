"""How large a batch and a part should be, found by trying for a second or two."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter, thread_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.data import Batch, Source
from models.errors import ModelsError
from models.runtime import Scorer
from service.batch.errors import JobError
from service.batch.memory import cores, rss, say_size
from service.batch.pipeline import Flow

_SAMPLE = 16
_GOOD_ENOUGH = 0.97  # the smallest batch within this share of the best rate wins: less memory, same speed
_OVERHEAD = 0.0003  # seconds that the pipeline itself spends on a batch, whatever its size
_SECONDS = 1.5
_LONGEST_RUN = 0.4
_LARGEST = 16_384
_INPUTS = 256 << 20  # inputs in flight when no limit is given
_PART_SECONDS = 20.0
_PART_ROWS = (1024, 262_144)
_PART_BYTES = 128 << 20
_MOST_PARTS = 20_000
_MOST_DECODERS = 64
_NOTICEABLE = 0.005  # below this many seconds a clock says nothing about waiting
_RESERVE = 48 << 20  # what writing a part and the allocators' slack take beside the inputs


@dataclass(frozen=True)
class Sizes:
    """What a job runs with."""

    flow: Flow
    part_rows: int


@dataclass(frozen=True)
class Wishes:
    """What the caller has settled; None leaves it to the probe."""

    batch: int | None = None
    part_rows: int | None = None
    workers: int | None = None
    max_memory: int | None = None


def choose(source: Source, scorer: Scorer, wishes: Wishes) -> Sizes:
    """Batch size, threads, depth of the queue and rows a part for a source and a model."""
    cost = _decode(source)
    workers = _workers(scorer, wishes)
    room = _room(wishes.max_memory)
    x = _runnable(source, scorer, cost.sample)
    most = max(1, room // max(1, source.item_bytes * (2 * workers + cost.threads)))
    batch = wishes.batch or scorer.session.fixed_batch or _best_batch(scorer, x, min(_LARGEST, most), room)
    flow = _flow(source, batch, workers, cost.threads, room, wishes.max_memory)
    if wishes.part_rows is not None:
        return Sizes(flow, wishes.part_rows)
    speed = min(workers * batch / _seconds(scorer, x, batch), cost.threads / cost.seconds)
    return Sizes(flow, _part_rows(speed, batch, len(source), _row_bytes(cost.sample)))


def resumed(source: Source, scorer: Scorer, wishes: Wishes, batch: int, part_rows: int) -> Sizes:
    """The sizes of a job that began earlier: its cut is kept, its threads are those of this machine."""
    room = _room(wishes.max_memory)
    flow = _flow(source, batch, _workers(scorer, wishes), _decode(source).threads, room, wishes.max_memory)
    return Sizes(flow, part_rows)


@dataclass(frozen=True)
class _Decoding:
    """A few real items, the seconds an item takes, and how many threads keep the cores busy with it."""

    sample: Batch
    seconds: float
    threads: int


def _decode(source: Source) -> _Decoding:
    block = next(source.blocks(_SAMPLE))
    source.decode(block)  # pays for imports and caches
    wall, cpu = perf_counter(), thread_time()
    sample = source.decode(block)
    wall, cpu = perf_counter() - wall, max(thread_time() - cpu, 1e-6)
    waiting = wall / cpu if wall > _NOTICEABLE else 1.0  # remote files keep a thread waiting, so more of them pay
    threads = min(_MOST_DECODERS, max(cores(), round(cores() * waiting)))
    return _Decoding(sample, max(wall / len(sample), 1e-9), threads)


def _runnable(source: Source, scorer: Scorer, sample: Batch) -> NDArray[Any]:
    """Real items to try the model with; made up ones where there are none on which it runs."""
    for items in sample.items:
        with suppress(ModelsError):
            scorer.score(items.x)
            return items.x
    return source.spec.example()


def _workers(scorer: Scorer, wishes: Wishes) -> int:
    return wishes.workers or (1 if scorer.provider.startswith("CUDA") else cores())


def _room(max_memory: int | None) -> int:
    """Bytes for inputs in flight."""
    if max_memory is None:
        return _INPUTS
    room = max_memory - rss() - _RESERVE
    if room <= 0:
        least = say_size(rss() + _RESERVE + (16 << 20))
        raise JobError(f"--max-memory {say_size(max_memory)} is too little: with the model loaded {least} are needed.")
    return min(room // 2, _INPUTS)


def _flow(source: Source, batch: int, workers: int, decoders: int, room: int, max_memory: int | None) -> Flow:
    fitting = int(room // max(1, batch * source.item_bytes))
    if fitting < 1 and max_memory is not None:
        size = say_size(batch * source.item_bytes)
        raise JobError(
            f"A batch of {batch} items takes {size}, more than --max-memory {say_size(max_memory)} leaves; "
            "raise it or give a smaller --batch-size."
        )
    depth = max(1, min(2 * workers + decoders, fitting))
    return Flow(batch, min(workers, depth), min(decoders, depth), depth)


def _best_batch(scorer: Scorer, x: NDArray[Any], most: int, room: int) -> int:
    """The smallest batch that is about as fast as any."""
    tried: list[tuple[int, float]] = []
    deadline = perf_counter() + _SECONDS
    before = rss()
    for size in _sizes(most):
        seconds = _seconds(scorer, x, size)
        tried.append((size, size / (seconds + _OVERHEAD)))
        best = max(rate for _, rate in tried)
        falling = len(tried) > 2 and max(rate for _, rate in tried[-2:]) < best
        if falling or seconds > _LONGEST_RUN or perf_counter() > deadline or rss() - before > room:
            break
    enough = _GOOD_ENOUGH * max(rate for _, rate in tried)
    return next(size for size, rate in tried if rate >= enough)


def _sizes(most: int) -> Iterator[int]:
    size = 1 if most < 8 else 8
    while size <= most:
        yield size
        size *= 2


def _seconds(scorer: Scorer, x: NDArray[Any], size: int) -> float:
    """How long one batch takes: the best of a few runs after a warm-up."""
    batch = x[np.arange(size) % len(x)]
    scorer.score(batch)
    best = float("inf")
    for _ in range(3):
        started = perf_counter()
        scorer.score(batch)
        best = min(best, perf_counter() - started)
        if best > _LONGEST_RUN / 2:
            break
    return best


def _part_rows(speed: float, batch: int, rows: int, row_bytes: float) -> int:
    """About twenty seconds of work, in whole batches, so that little is lost and files are not too many."""
    least, most = max(_PART_ROWS[0], rows // _MOST_PARTS), _PART_ROWS[1]
    most = max(_PART_ROWS[0], min(max(least, most), int(_PART_BYTES / row_bytes)))
    wanted = min(most, max(least, int(speed * _PART_SECONDS)))
    rows_a_part = 1 << (wanted - 1).bit_length()  # the power of two at or above
    return max(1, rows_a_part // batch) * batch


def _row_bytes(sample: Batch) -> float:
    """Memory of an output row: scores and what is carried through."""
    return 200.0 + float(sample.rows.carried.nbytes + sample.rows.ids.nbytes) / len(sample)
