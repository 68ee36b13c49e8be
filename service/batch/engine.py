"""Parts out of rows: the local engine, and what the Ray engine runs inside each actor."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from models.data import Source
from models.runtime import Scorer
from service.batch.parts import Plan
from service.batch.pipeline import Flow, Pipeline, contiguous
from service.batch.scoring import Judge, Scores, infer

Advance = Callable[[int], None]


@dataclass(frozen=True)
class Done:
    """A part ready to be written."""

    index: int
    table: pa.Table
    counts: dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Everything needed to turn rows into parts."""

    source: Source
    judge: Judge
    plan: Plan
    flow: Flow


def score_parts(
    work: Work,
    scorer: Scorer,
    parts: Sequence[int],
    *,
    advance: Advance = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Generator[Done]:
    """Score parts in order; once `stopping` says so, the part at hand is the last."""
    plan, held = work.plan, list[Scores]()
    spans = contiguous(plan.span(part) for part in parts)
    ahead = 2 + plan.part_rows // plan.batch
    with Pipeline(work.source, partial(infer, scorer), work.flow, ahead) as pipeline:
        for scores in pipeline.run(spans):
            held.append(scores)
            advance(len(scores))
            start, stop = held[0].rows.start, scores.rows.start + len(scores)
            part = start // plan.part_rows
            if stop == plan.span(part)[1]:
                yield Done(part, *work.judge.table(held))
                held = []
                if stopping():
                    return
            elif stopping():
                pipeline.stop_at(plan.span(part)[1])
