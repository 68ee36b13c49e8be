"""Decisions into the ledger: rows from a group of requests, written in one transaction."""

import io
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.gate import ItemIds
from service.ledger.engine import Database
from service.monitoring.audit import Audit
from service.monitoring.reference import spread
from service.monitoring.tally import Group, thresholds

COLUMNS = "request_id, item, item_id, at, label, s_id, s_ood, reason, source, audit, propensity, margin, input"
Row = tuple[Any, ...]
Kept = Literal["none", "audit", "all"]

# Rows a statement of SQLite inserts. The driver gives the interpreter lock away and takes it back at every statement,
# which beside a busy event loop costs more than the row itself, so most rows go in by the hundreds.
_CHUNKS = (256, 32, 4, 1)
_VALUES = f"({', '.join('?' * len(COLUMNS.split()))})"
_INSERTS = {size: f"INSERT INTO decisions ({COLUMNS}) VALUES {', '.join([_VALUES] * size)}" for size in _CHUNKS}
_COPY = f"COPY decisions ({COLUMNS}) FROM STDIN"


def rows(group: Group, source: int, audit: Audit, inputs: Kept = "none") -> list[Row]:
    """The rows of a group of requests that one policy judged; `inputs` says whose input goes along."""
    requests: list[str] = []
    items: list[int] = []
    own: list[str | None] = []
    ids: list[str] = []
    times: list[float] = []
    for batch in group.batches:
        request_id, count = batch.request_id, len(batch.ids)
        ids += batch.ids
        if count == 1:
            requests.append(request_id)
            items.append(0)
            times.append(batch.time)
        else:
            requests += [request_id] * count
            items += range(count)
            times += [batch.time] * count
        if isinstance(batch.ids, ItemIds):
            own += [None] * count
        else:
            own += [_own(id, request_id, i) for i, id in enumerate(batch.ids)]
    flags, propensities = audit.draw(ids, group.accept.tolist())
    return list(
        zip(
            requests,
            items,
            own,
            times,
            group.label.tolist(),
            _finite(group.s_id),
            _finite(group.s_ood),
            group.reason.tolist(),
            [source] * len(ids),
            flags,
            propensities,
            margins(group),
            _inputs(group, flags, inputs),
            strict=True,
        )
    )


def _own(id: str, request_id: str, item: int) -> str | None:
    """The caller's own id; PostgreSQL's text cannot hold a NUL, and one odd id must not cost a group its place."""
    return None if id == f"{request_id}-{item}" else id.replace("\0", "\ufffd")


def margins(group: Group) -> list[float | None]:
    """How far a reject is from being accepted: its worse door, in interquartile ranges; None for all others."""
    tau_id, tau_ood = thresholds(group.policy, group.label)
    lacking = np.maximum(
        (tau_id - group.s_id) / spread(group.policy, "s_id"), (tau_ood - group.s_ood) / spread(group.policy, "s_ood")
    )
    found: list[float | None] = lacking.tolist()
    for index in np.flatnonzero(group.accept | ~np.isfinite(lacking)).tolist():
        found[index] = None
    return found


def _inputs(group: Group, audited: Sequence[Any], kept: Kept) -> list[bytes | None]:
    """Each item's input as a .npy file, where it is to be kept."""
    if kept == "none":
        return [None] * len(group)
    files: list[bytes | None] = []
    for batch in group.batches:
        given = [None] * len(batch) if batch.inputs is None else batch.inputs
        files += [None if x is None else _npy(x) if kept == "all" or audited[len(files) + i] else None
                  for i, x in enumerate(given)]  # fmt: skip
    return files


def _npy(x: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, x, allow_pickle=False)
    return buffer.getvalue()


def append(database: Database, pending: Sequence[Row]) -> None:
    """Write rows in one transaction; they are on disk when this returns."""
    if not pending:
        return
    if database.sqlite:
        with database.cursor() as cursor:
            _insert(cursor, pending)
        return
    with database.write() as connection:
        driver: Any = connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
            for row in pending:
                copy.write_row(row)


def _insert(cursor: Any, pending: Sequence[Row]) -> None:
    start = 0
    for size in _CHUNKS:
        while len(pending) - start >= size:
            cursor.execute(_INSERTS[size], tuple(chain.from_iterable(pending[start : start + size])))
            start += size


def _finite(column: NDArray[np.float64]) -> list[float | None]:
    values: list[float | None] = column.tolist()
    finite = np.isfinite(column)
    if not finite.all():
        for index in np.flatnonzero(~finite).tolist():
            values[index] = None
    return values
