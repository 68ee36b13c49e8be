"""The sizes a job picks for itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.bundle import Bundle
from models.data import open_source
from service.batch.errors import JobError
from service.batch.memory import rss
from service.batch.probe import Sizes, Wishes, _part_rows, choose


@given(
    speed=st.floats(0.1, 1e8), batch=st.integers(1, 16_384), rows=st.integers(1, 10**10), width=st.floats(200.0, 900.0)
)
def test_parts_are_whole_batches_and_not_too_many(speed: float, batch: int, rows: int, width: float) -> None:
    part = _part_rows(speed, batch, rows, width)
    assert part % batch == 0
    assert part <= max(batch, 262_144, rows // 10_000)
    if rows <= 10**9:
        assert -(-rows // part) <= 25_000


def test_a_slow_model_gets_smaller_parts() -> None:
    assert _part_rows(10.0, 16, 10**7, 400.0) < _part_rows(1e6, 16, 10**7, 400.0)


def _chosen(bundle: Bundle, data: Path, **wishes: int) -> Sizes:
    source = open_source(data, bundle.manifest.input)
    return choose(source, bundle.scorer(bundle.options(threads=1, max_batch=1 << 16)), Wishes(**wishes))


def test_a_tiny_model_gets_large_batches_and_a_slow_one_small(
    bundle: Bundle, slow_bundle: Bundle, vectors: Callable[..., Path]
) -> None:
    data = vectors(200)
    quick, slow = _chosen(bundle, data), _chosen(slow_bundle, data)
    assert quick.flow.batch >= 512
    assert slow.flow.batch < quick.flow.batch
    assert slow.part_rows <= quick.part_rows  # on a fast machine both take the largest
    for sizes in (quick, slow):
        assert sizes.part_rows % sizes.flow.batch == 0
        assert sizes.flow.workers <= sizes.flow.depth


def test_wishes_are_kept(bundle: Bundle, vectors: Callable[..., Path]) -> None:
    sizes = _chosen(bundle, vectors(50), batch=7, part_rows=21, workers=3)
    assert (sizes.flow.batch, sizes.part_rows, sizes.flow.workers) == (7, 21, 3)


def test_a_batch_that_does_not_fit_is_refused(bundle: Bundle, vectors: Callable[..., Path]) -> None:
    with pytest.raises(JobError, match=r"A batch of 50000000 items takes .* give a smaller --batch-size"):
        _chosen(bundle, vectors(50), batch=50_000_000, max_memory=rss() + (120 << 20))
