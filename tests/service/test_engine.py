"""Running requests in line, on a thread or together: everybody gets their own scores, and only their own faults."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.echo import activate, item, save_echo_bundle
from support.local import Local, problem

from models.bundle import Bundle
from models.errors import RuntimeFault
from models.inputs import TensorInput
from models.runtime import Scored, Scorer
from service.engine import BatchingEngine, Cost, DirectEngine


@pytest.fixture
def scorer(bundle: Bundle) -> Scorer:
    return bundle.scorer()


class Picky:
    """A scorer that fails on any batch with an item whose s_id is negative, and notes the sizes of its runs."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self.sizes: list[int] = []

    def score(self, x: NDArray[Any], *, probabilities: bool = False) -> Scored:
        self.sizes.append(len(x))
        if (x[:, 0] < 0).any():
            raise RuntimeFault("negative")
        return self._scorer.score(x, probabilities=probabilities)


def batch(*s_ids: float) -> NDArray[np.float32]:
    return np.array([item(value, value) for value in s_ids], np.float32)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(-1, 99), min_size=1, max_size=7), min_size=1, max_size=12), st.integers(1, 16))
def test_joined_runs_give_everybody_their_own(scorer: Scorer, requests: list[list[int]], max_batch: int) -> None:
    picky = Picky(scorer)

    async def ask(engine: BatchingEngine, request: list[int], probabilities: bool) -> Any:
        try:
            return await engine.score(batch(*request), probabilities=probabilities)
        except RuntimeFault:
            return None

    async def all_of_them() -> list[Any]:
        engine = BatchingEngine(picky, max_batch=max_batch)  # type: ignore[arg-type]
        try:
            return await asyncio.gather(*(ask(engine, r, bool(i % 2)) for i, r in enumerate(requests)))
        finally:
            engine.close()

    for number, (request, run) in enumerate(zip(requests, asyncio.run(all_of_them()), strict=True)):
        if min(request) < 0:
            assert run is None
            continue
        assert run.scored.s_id.tolist() == request
        assert run.batch_size >= len(request)
        assert (run.scored.probabilities is not None) == bool(number % 2)
    assert all(size <= max(max_batch, max(map(len, requests))) for size in picky.sizes)


def test_requests_that_arrive_during_a_run_go_together(scorer: Scorer) -> None:
    picky = Picky(scorer)

    async def many() -> list[Any]:
        engine = BatchingEngine(picky, max_batch=64, wait_seconds=0.02)  # type: ignore[arg-type]
        try:
            return await asyncio.gather(*(engine.score(batch(i)) for i in range(40)))
        finally:
            engine.close()

    runs = asyncio.run(many())
    assert [run.scored.s_id[0] for run in runs] == list(range(40))
    assert picky.sizes == [40]


def test_a_request_given_up_is_not_run(scorer: Scorer) -> None:
    picky = Picky(scorer)

    async def give_up() -> None:
        engine = BatchingEngine(picky, max_batch=4, wait_seconds=0.05)  # type: ignore[arg-type]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.score(batch(1)), 0.01)
        run = await engine.score(batch(2, 3))
        assert run.scored.s_id.tolist() == [2, 3]
        engine.close()

    asyncio.run(give_up())
    assert picky.sizes == [2]


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_direct_runs_in_line_and_on_a_thread_agree(scorer: Scorer, seconds: float) -> None:
    async def one() -> Any:
        engine = DirectEngine(scorer, Cost(seconds, 0.0))
        try:
            return await engine.score(batch(1, 2, 3), probabilities=True)
        finally:
            engine.close()

    run = asyncio.run(one())
    assert run.scored.s_id.tolist() == [1, 2, 3]
    assert run.batch_size == 3


def test_the_cost_of_a_run_grows_with_its_size(scorer: Scorer) -> None:
    cost = Cost.measure(scorer, batch(1))
    assert 0 < cost.of(1) < 0.1
    assert cost.of(1000) >= cost.of(1)


def test_batching_isolates_bad_requests_over_http(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(bundle, batching="on", batch_wait_ms=5)
    bodies = [[item(i, i)] if i % 3 else [item(i, i)[:4]] for i in range(30)]

    async def everyone() -> list[Any]:
        return await asyncio.gather(*(local.client.post("/v1/classify", json={"instances": b}) for b in bodies))

    for i, answer in enumerate(local.run(everyone())):
        if i % 3:
            assert answer.json()["predictions"][0]["s_id"] == i
        else:
            problem(answer, 422, "invalid-input")


def test_only_inputs_of_one_shape_are_joined(tmp_path: Path, make_local: Callable[..., Local]) -> None:
    bundle = save_echo_bundle(tmp_path / "tokens", TensorInput(dtype="int64", shape=(None,)))
    activate(bundle)
    local = make_local(bundle, batching="on", batch_wait_ms=5)
    bodies = [[[i % 9, 1, 1, 0, 0, *([1] * (i % 3))]] for i in range(30)]

    async def everyone() -> list[Any]:
        return await asyncio.gather(*(local.client.post("/v1/classify", json={"instances": b}) for b in bodies))

    answers = local.run(everyone())
    assert [answer.json()["predictions"][0]["s_id"] for answer in answers] == [i % 9 for i in range(30)]
