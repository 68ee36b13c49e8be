"""The pipeline keeps the order, the bound and its manners when something fails."""

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data import Batch, Block, Items, Rows, Source
from models.errors import DataError
from models.inputs import TensorInput
from service.batch.errors import JobError
from service.batch.pipeline import Flow, Pipeline, contiguous
from service.batch.scoring import Scores


class _Numbers(Source):
    """Row i holds the number i; counts how many decoded batches are alive at once."""

    spec = TensorInput(shape=(1,))
    classes = None
    labelled = False

    def __init__(self, n: int, jitter: float = 0.0, broken_at: int | None = None) -> None:
        self.n, self.jitter, self.broken_at = n, jitter, broken_at
        self.alive = self.most = self.read = 0
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return self.n

    def fingerprint(self) -> str:
        return ""

    def describe(self) -> str:
        return ""

    def blocks(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        end = self.n if stop is None else stop
        for at in range(start, end, size):
            if self.broken_at is not None and at >= self.broken_at:
                raise OSError("the disk is gone")
            n = min(size, end - at)
            self.read = at + n
            yield Block(Rows(at, pa.array([str(i) for i in range(at, at + n)]), None, None, None, pa.table({})), n)

    def decode(self, block: Block) -> Batch:
        with self.lock:
            self.alive += 1
            self.most = max(self.most, self.alive)
        time.sleep(self.jitter * (block.rows.start % 3))
        x = np.arange(block.rows.start, block.rows.start + block.payload, dtype=np.float32)[:, None]
        return Batch(block.rows, (Items(np.arange(len(x)), x),))

    def score(self, batch: Batch) -> Scores:
        time.sleep(self.jitter * (batch.rows.start % 2))
        x = batch.items[0].x[:, 0].astype(np.float64)
        with self.lock:
            self.alive -= 1
        return Scores(batch.rows, {}, x.astype(np.int64), x, x, np.ones(len(x), bool))


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 60),
    batch=st.integers(1, 9),
    workers=st.integers(1, 4),
    decoders=st.integers(1, 4),
    depth=st.integers(1, 8),
)
def test_rows_come_in_order_and_few_are_alive(n: int, batch: int, workers: int, decoders: int, depth: int) -> None:
    source = _Numbers(n, jitter=0.0005)
    with Pipeline(source, source.score, Flow(batch, workers, decoders, depth)) as pipeline:
        got = [int(label) for scores in pipeline.run([(0, n)]) for label in scores.label]
    assert got == list(range(n))
    assert source.most <= depth


def test_a_slow_reader_of_results_holds_the_pipeline_back() -> None:
    source = _Numbers(10_000)
    with Pipeline(source, source.score, Flow(10, 2, 2, 4), ahead=6) as pipeline:
        results = pipeline.run([(0, 10_000)])
        next(results)
        time.sleep(0.2)
        assert source.read <= 10 * (1 + 4 + 6 + 2)


def test_what_breaks_is_told_after_what_was_good() -> None:
    source = _Numbers(100, broken_at=50)
    got = []
    with (
        Pipeline(source, source.score, Flow(10, 2, 2, 4)) as pipeline,
        pytest.raises(JobError, match=r"Reading stopped \(the disk is gone\); what was finished before is kept"),
    ):
        got.extend(scores.rows.start for scores in pipeline.run([(0, 100)]))
    assert got == [0, 10, 20, 30, 40]


def test_a_fault_of_the_model_ends_the_run_promptly() -> None:
    source = _Numbers(100_000)

    def fail(batch: Batch) -> Scores:
        if batch.rows.start >= 30:
            raise DataError("no")
        return source.score(batch)

    started, before = time.monotonic(), threading.active_count()
    with Pipeline(source, fail, Flow(10, 2, 2, 4)) as pipeline, pytest.raises(DataError, match="no"):
        list(pipeline.run([(0, 100_000)]))
    assert time.monotonic() - started < 5
    assert threading.active_count() <= before


def test_leaving_early_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    source = _Numbers(100_000)
    with Pipeline(source, source.score, Flow(10, 2, 2, 4)) as pipeline:
        next(pipeline.run([(0, 100_000)]))
    assert threading.active_count() <= before
    assert source.read < 100_000


def test_stop_at_delivers_up_to_the_row() -> None:
    source = _Numbers(1000, jitter=0.001)
    with Pipeline(source, source.score, Flow(10, 1, 1, 2)) as pipeline:
        got = []
        for scores in pipeline.run([(0, 1000)]):
            got.append(scores.rows.start)
            pipeline.stop_at(200)
    assert got == list(range(0, 200, 10))


@given(st.lists(st.integers(0, 40), unique=True).map(sorted))
def test_contiguous_spans_cover_the_same_rows(parts: list[int]) -> None:
    spans = [(10 * part, 10 * part + 10) for part in parts]
    joined = list(contiguous(spans))
    assert [i for a, b in joined for i in range(a, b)] == [i for a, b in spans for i in range(a, b)]
    assert all(first[1] < second[0] for first, second in pairwise(joined))
