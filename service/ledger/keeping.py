"""Keeping the ledger small: what it holds, and deleting what is too old or too much."""

import math
import time
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from calibration.policy import REASONS
from service.ledger.engine import Database
from service.ledger.schema import decisions, labels, sources, tallies

CHUNK = 5000
_TARGET = 0.95  # of a size limit: deleting a little more than needed saves deleting every minute
_VACUUM_PAGES = 1000
DAY = 86400.0


@dataclass(frozen=True)
class Limits:
    """What may stay."""

    retention_days: float
    labelled_days: float
    max_rows: int | None = None
    max_bytes: int | None = None


def prune(database: Database, limits: Limits, now: float | None = None) -> int:
    """Delete decisions beyond the limits, oldest first; returns how many went.

    Labelled decisions stay until they are `labelled_days` old: they cost effort and are what the next calibration
    is made from. Short transactions, so that a worker never waits long for its turn.
    """
    now = time.time() if now is None else now
    deleted = _delete(database, _last_before(database, now - limits.labelled_days * DAY), labelled=True)
    last = max(_last_before(database, now - limits.retention_days * DAY), _last_beyond(database, limits.max_rows))
    deleted += _delete(database, last, labelled=False)
    while excess := _delete(database, _last_too_large(database, limits.max_bytes), labelled=False):
        deleted += excess
    if deleted and database.sqlite:
        _give_back(database)
    return deleted


def _give_back(database: Database) -> None:
    """Return free pages to the file system, some at a time: each statement holds the write lock."""
    connection = database.engine.raw_connection()
    try:
        driver: Any = connection.driver_connection
        free, before = driver.execute("PRAGMA freelist_count").fetchone()[0], math.inf
        while 0 < free < before:
            driver.executescript(f"PRAGMA incremental_vacuum({_VACUUM_PAGES})")
            free, before = driver.execute("PRAGMA freelist_count").fetchone()[0], free
    finally:
        connection.close()


def used_bytes(database: Database) -> int:
    """Bytes that the ledger's content takes."""
    with database.read() as connection:
        if not database.sqlite:
            names = [table.name for table in (decisions, labels, sources, tallies)]
            sizes = (connection.execute(sa.select(sa.func.pg_total_relation_size(name))).scalar_one() for name in names)
            return int(sum(sizes))
        pages, free, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def _ends(connection: sa.Connection) -> tuple[int, int]:
    first, last = connection.execute(sa.select(sa.func.min(decisions.c.id), sa.func.max(decisions.c.id))).one()
    return (0, -1) if first is None else (int(first), int(last))


def _last_before(database: Database, cutoff: float) -> int:
    """The last id written before a time, by bisection: ids and times rise together, and no index on time is needed."""
    with database.read() as connection:
        low, high = _ends(connection)
        low -= 1  # the last id known to be before the cutoff; anything above `high` is after it
        while low < high:
            middle = (low + high + 1) // 2
            query = sa.select(decisions.c.id, decisions.c.at).where(decisions.c.id >= middle)
            row = connection.execute(query.order_by(decisions.c.id).limit(1)).one()
            if row.at < cutoff:
                low = int(row.id)
            else:
                high = middle - 1
    return low


def _last_beyond(database: Database, max_rows: int | None) -> int:
    if max_rows is None:
        return -1
    with database.read() as connection:
        return _ends(connection)[1] - max_rows


def _last_too_large(database: Database, max_bytes: int | None) -> int:
    if max_bytes is None or not database.sqlite:
        return -1
    used = used_bytes(database)
    if used <= max_bytes:
        return -1
    with database.read() as connection:
        first, last = _ends(connection)
    return first - 1 + math.ceil((last - first + 1) * (1.0 - _TARGET * max_bytes / used))


def _delete(database: Database, last: int, *, labelled: bool) -> int:
    """Delete decisions up to an id, chunk by chunk, with their labels if they have some."""
    flag = int(labelled)
    chosen = sa.select(decisions.c.id).where(decisions.c.id <= last, decisions.c.labelled == flag)
    chosen = chosen.order_by(decisions.c.id).limit(CHUNK)
    total = 0
    while True:
        with database.write() as connection:
            ids = list(connection.execute(chosen).scalars())
            if not ids:
                return total
            if labelled:
                connection.execute(labels.delete().where(labels.c.decision.in_(ids)))
            span = sa.and_(decisions.c.id >= ids[0], decisions.c.id <= ids[-1], decisions.c.labelled == flag)
            connection.execute(decisions.delete().where(span))
            total += len(ids)


def stats(database: Database) -> dict[str, Any]:
    """What the ledger holds, by bundle and policy."""
    count = sa.func.count()
    query = (
        sa.select(
            sources.c.bundle,
            sources.c.policy,
            decisions.c.reason,
            count.label("decisions"),
            sa.func.sum(decisions.c.audit).label("audit"),
            sa.func.sum(decisions.c.labelled).label("labelled"),
            sa.func.min(decisions.c.at).label("first"),
            sa.func.max(decisions.c.at).label("last"),
        )
        .select_from(decisions.join(sources, sources.c.id == decisions.c.source))
        .group_by(sources.c.bundle, sources.c.policy, decisions.c.reason)
        .order_by(sources.c.bundle, sources.c.policy, decisions.c.reason)
    )
    with database.read() as connection:
        rows = connection.execute(query).all()
        risk = connection.execute(sa.select(sources.c.bundle, sources.c.policy, tallies.c.labelled, tallies.c.wrong)
            .select_from(tallies.join(sources, sources.c.id == tallies.c.source))).all()  # fmt: skip
    audited = {(row.bundle, row.policy): {"labelled": row.labelled, "wrong": row.wrong} for row in risk}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        key = (row.bundle, row.policy)
        entry = found.setdefault(
            key,
            {"bundle": row.bundle, "policy": row.policy, "decisions": 0, "accepted": 0, "rejected": {}, "audit": 0,
             "labelled": 0, "first": row.first, "last": row.last,
             "audit_labels": audited.get(key, {"labelled": 0, "wrong": 0})},
        )  # fmt: skip
        entry["decisions"] += row.decisions
        entry["audit"] += int(row.audit)
        entry["labelled"] += int(row.labelled)
        entry["first"], entry["last"] = min(entry["first"], row.first), max(entry["last"], row.last)
        if row.reason == 0:
            entry["accepted"] += row.decisions
        else:
            entry["rejected"][str(REASONS[row.reason])] = row.decisions
    total = sum(entry["decisions"] for entry in found.values())
    return {
        "ledger": database.shown,
        "bytes": used_bytes(database),
        "decisions": total,
        "policies": list(found.values()),
    }
