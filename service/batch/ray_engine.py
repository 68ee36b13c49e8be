"""The same parts, scored by a pool of Ray actors.

Each actor opens the bundle once, with a session of its own, and scores whole parts with the code of the local
engine; the driver writes them. An actor that dies is started again by Ray and its part is done again.
"""

import json
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from calibration.errors import CalibrationError
from models.bundle import Bundle
from models.errors import ModelsError
from service.batch.engine import Advance, Done, Work, score_parts
from service.batch.errors import JobError
from service.batch.memory import cores
from service.batch.options import Job
from service.batch.pipeline import Flow

_PATIENCE = 5.0  # seconds
_BLOCKS = 4096  # more tasks than this only burden the driver


def score_on_ray(
    work: Work,
    bundle: Bundle,
    job: Job,
    parts: Sequence[int],
    *,
    advance: Advance = lambda _: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Generator[Done]:
    """Parts in the order in which they are finished."""
    ray, owned = _connect(job.address)
    try:
        dataset = _dataset(ray, work, bundle, job, parts)
        seen: set[int] = set()
        for row in _rows(ray, dataset):
            index = int(row["part"])
            if index in seen:
                continue
            seen.add(index)
            table = ipc.open_stream(row["table"]).read_all()
            advance(len(table))
            yield Done(index, table, json.loads(row["counts"]))
            if stopping():
                return
    finally:
        if owned:
            ray.shutdown()


def _rows(ray: Any, dataset: Any) -> Iterator[dict[str, Any]]:
    """The rows of a dataset; what went wrong in an actor is said as it would be said here."""
    try:
        yield from dataset.iter_rows()
    except ray.exceptions.RayError as fault:
        cause: BaseException | None = fault
        while cause is not None and not isinstance(cause, ModelsError | CalibrationError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is not None:
            raise cause from None
        last = str(fault).strip().splitlines()[-1]
        raise JobError(f"A Ray worker failed ({last}); what was finished before is kept.") from fault


class PartScorer:
    """The stateful actor: a session, and parts on demand."""

    def __init__(self, setup: list[Any]) -> None:
        import ray

        work, files, options = ray.get(setup[0])
        self._folder = tempfile.TemporaryDirectory(prefix="airlock-bundle-")
        for name, data in files.items():
            (Path(self._folder.name) / name).write_bytes(data)
        bundle = Bundle.open(self._folder.name)
        self._scorer = bundle.scorer(bundle.options(**options))
        self._work = work

    def __call__(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        parts = [int(part) for part in batch["part"]]
        for done in score_parts(self._work, self._scorer, parts):
            yield {
                "part": np.array([done.index]),
                "table": [_to_bytes(done.table)],
                "counts": [json.dumps(done.counts)],
            }


def _connect(address: str | None) -> tuple[Any, bool]:
    """Ray, connected; whether it was started here and is to be stopped here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # Ray Data makes Ray warn about Ray Data's own actors
    try:
        import ray
        import ray.data
    except ImportError as missing:
        raise JobError("--engine ray needs Ray; pip install 'airlock-gate[ray]'.") from missing
    owned = not ray.is_initialized()
    if owned:
        _check_reachable(address)
        try:
            ray.init(
                address,
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (ConnectionError, ValueError, RuntimeError) as fault:
            raise JobError(f"No Ray cluster answers at {address!r} ({str(fault).splitlines()[0]}).") from fault
    return ray, owned


def _check_reachable(address: str | None) -> None:
    """Ray itself would try for many minutes before it says that nobody is there."""
    host, colon, port = (address or "").rpartition(":")
    if not colon or "/" in host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except OSError as fault:
        raise JobError(f"No Ray cluster answers at {address} ({fault}); is it the head node's GCS port?") from fault


@dataclass(frozen=True)
class Shares:
    """How many actors there are, and what each may use."""

    workers: int
    cpus: int
    gpus: float

    @classmethod
    def of(cls, resources: dict[str, float], asked: int | None, *, use_gpus: bool) -> "Shares":
        """One actor a GPU with its share of the CPUs to decode for it; without GPUs one actor a CPU."""
        cpus = max(1, int(resources.get("CPU", 1)))
        gpus = resources.get("GPU", 0.0) if use_gpus else 0.0
        workers = asked or max(1, int(gpus or cpus))
        return cls(workers, max(1, cpus // workers) if gpus else 1, min(1.0, gpus / workers))


def _dataset(ray: Any, work: Work, bundle: Bundle, job: Job, parts: Sequence[int]) -> Any:
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    ray.data.DataContext.get_current().enable_progress_bars = False
    shares = Shares.of(ray.cluster_resources(), job.wishes.workers, use_gpus=job.provider != "cpu")
    options: dict[str, Any] = {"threads": 1, "max_batch": max(1 << 16, work.plan.batch)}
    if job.provider:
        options["provider"] = job.provider
    files = {name: (bundle.path / name).read_bytes() for name in ("manifest.json", *bundle.manifest.files)}
    decoders = work.flow.decoders if work.flow.decoders > cores() else shares.cpus  # more where reading waits
    alone = replace(work, flow=Flow(work.plan.batch, 1, decoders, 2 + decoders))
    together = -(-work.source.natural_rows // work.plan.part_rows)
    return ray.data.from_items(
        [{"part": part} for part in parts], override_num_blocks=min(_BLOCKS, len(parts))
    ).map_batches(
        PartScorer,
        batch_size=min(together, -(-len(parts) // shares.workers)),
        compute=ray.data.ActorPoolStrategy(size=min(shares.workers, len(parts))),
        # Wrapped in a list the reference travels as it is, so that an actor that is started again finds it.
        fn_constructor_args=([ray.put((alone, files, options))],),
        num_cpus=shares.cpus,
        num_gpus=shares.gpus or None,
    )


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
