"""Running the graph for requests: in line when it is quick, on a thread when it is not, together when asked to.

A quick run on the event loop saves the thread hop that would cost more than the run itself. A slow one must not keep
health checks and refusals waiting. Batching joins what is compatible and isolates failures: every input was
validated before, and should a joint run still fail, each request is run alone.
"""

import asyncio
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from models.errors import ModelsError
from models.runtime import Scored, Scorer

INLINE_SECONDS = 0.002


class Run(NamedTuple):
    """Scores of one request with the wall time and the size of the graph run they came from."""

    scored: Scored
    seconds: float
    batch_size: int


class Engine(Protocol):
    """Scores validated batches."""

    async def score(self, x: NDArray[Any], *, probabilities: bool = False) -> Run:
        """Scores of every item of `x`."""

    def close(self) -> None:
        """Let go of threads."""


@dataclass(frozen=True)
class Cost:
    """Seconds a run takes: `first + (n - 1) * further`, as measured on this machine."""

    first: float
    further: float

    @classmethod
    def measure(cls, scorer: Scorer, example: NDArray[Any], *, many: int = 16) -> "Cost":
        """Time one item and a few together; the least of some runs, so that a hiccup does not count."""
        one, several = (_least(scorer, np.repeat(example[:1], n, axis=0)) for n in (1, many))
        return cls(one, max(0.0, (several - one) / (many - 1)))

    def of(self, n: int) -> float:
        """Estimated seconds for `n` items."""
        return self.first + (n - 1) * self.further


class DirectEngine:
    """Each request is its own run."""

    def __init__(self, scorer: Scorer, cost: Cost) -> None:
        self._scorer = scorer
        self._cost = cost
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="airlock-run")

    async def score(self, x: NDArray[Any], *, probabilities: bool = False) -> Run:
        """Scores of every item of `x`."""
        if self._cost.of(len(x)) <= INLINE_SECONDS:
            return _run(self._scorer, x, probabilities)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, _run, self._scorer, x, probabilities)

    def close(self) -> None:
        """Let go of the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True, eq=False)
class _Job:
    x: NDArray[Any]
    probabilities: bool
    result: "asyncio.Future[Run]"

    def fits(self, other: "_Job") -> bool:
        return self.x.shape[1:] == other.x.shape[1:]


class BatchingEngine:
    """Requests that wait while a run is under way go together in the next one, in the order they came."""

    def __init__(self, scorer: Scorer, *, max_batch: int, wait_seconds: float = 0.0) -> None:
        self._scorer = scorer
        self._max_batch = max_batch
        self._wait = wait_seconds
        self._jobs: deque[_Job] = deque()
        self._drainer: asyncio.Task[None] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="airlock-batch")

    async def score(self, x: NDArray[Any], *, probabilities: bool = False) -> Run:
        """Scores of every item of `x`."""
        job = _Job(x, probabilities, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._drainer is None or self._drainer.done():
            self._drainer = asyncio.create_task(self._drain())
        return await job.result

    def close(self) -> None:
        """Let go of the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _drain(self) -> None:
        while self._jobs:
            if self._wait and sum(len(job.x) for job in self._jobs) < self._max_batch:
                await asyncio.sleep(self._wait)
            jobs = self._take()
            if jobs:
                await self._run(jobs)

    def _take(self) -> list[_Job]:
        """The longest compatible start of the queue that fits in a batch; requests given up are dropped."""
        taken: list[_Job] = []
        size = 0
        while self._jobs:
            job = self._jobs[0]
            if job.result.done():
                self._jobs.popleft()
                continue
            if taken and (size + len(job.x) > self._max_batch or not job.fits(taken[0])):
                break
            taken.append(self._jobs.popleft())
            size += len(job.x)
        return taken

    async def _run(self, jobs: list[_Job]) -> None:
        x = jobs[0].x if len(jobs) == 1 else np.concatenate([job.x for job in jobs])
        probabilities = any(job.probabilities for job in jobs)
        loop = asyncio.get_running_loop()
        try:
            run = await loop.run_in_executor(self._pool, _run, self._scorer, x, probabilities)
        except Exception as fault:
            await self._isolate(jobs, fault)
        else:
            _hand_out(jobs, run)

    async def _isolate(self, jobs: list[_Job], fault: Exception) -> None:
        if len(jobs) > 1 and isinstance(fault, ModelsError):
            for job in jobs:
                await self._run([job])
            return
        for job in jobs:
            if not job.result.done():
                job.result.set_exception(fault)


def _hand_out(jobs: list[_Job], run: Run) -> None:
    start = 0
    for job in jobs:
        stop = start + len(job.x)
        if not job.result.done():
            job.result.set_result(Run(_part(run.scored, start, stop, job.probabilities), run.seconds, run.batch_size))
        start = stop


def _part(scored: Scored, start: int, stop: int, probabilities: bool) -> Scored:
    return Scored(
        scored.label[start:stop],
        scored.s_id[start:stop],
        scored.s_ood[start:stop],
        scored.finite[start:stop],
        scored.probabilities[start:stop] if probabilities and scored.probabilities is not None else None,
    )


def _run(scorer: Scorer, x: NDArray[Any], probabilities: bool) -> Run:
    start = time.perf_counter()
    scored = scorer.score(x, probabilities=probabilities)
    return Run(scored, time.perf_counter() - start, len(x))


def _least(scorer: Scorer, x: NDArray[Any]) -> float:
    scorer.score(x)
    return min(_run(scorer, x, False).seconds for _ in range(5))
