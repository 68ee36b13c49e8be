"""The ledger's content as score tables and as plain rows."""

import io
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
import sqlalchemy as sa

from calibration.policy import REASONS
from calibration.table import ScoreTable
from service.ledger.engine import Database, LedgerError
from service.ledger.schema import decisions, labels, recorded, sources

Since = str | float | datetime | timedelta | None
Chosen = Literal["audit", "all"]
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
OOD_LABEL, UNLABELLED = -1, -2


def since_time(since: Since, now: float | None = None) -> float:
    """A start in Unix seconds from a span back ("7d", "12h"), a date, or a time; None is the beginning."""
    now = time.time() if now is None else now
    if since is None:
        return 0.0
    if isinstance(since, timedelta):
        return now - since.total_seconds()
    if isinstance(since, datetime):
        return (since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp()
    if isinstance(since, int | float):
        return float(since)
    span = span_seconds(since)
    if span is not None:
        return now - span
    try:
        return since_time(datetime.fromisoformat(since))
    except ValueError:
        raise LedgerError(
            f"a start is a span such as 7d, 12h or 30m, or a date such as 2025-06-30; {since!r} arrived"
        ) from None


def span_seconds(span: str) -> float | None:
    """Seconds of a span such as 7d, 12h, 30m; None when it is not one."""
    match = _SPAN.fullmatch(span.strip())
    return None if match is None else float(match[1]) * _UNITS[match[2]]


def score_table(
    source: str | Path | Database, since: Since = None, bundle_hash: str | None = None, *, chosen: Chosen = "audit"
) -> ScoreTable:
    """A score table from labelled decisions.

    With `audit` (the default) only items that the audit drew count, each with the weight 1/propensity: they alone
    stand for all traffic. `all` takes every label as it is, which is right only when everything was labelled. No
    weight column is made where all weights are equal.
    """
    database = source if isinstance(source, Database) else Database(source, create=False)
    try:
        found = list(_labelled(database, since_time(since), bundle_hash, chosen))
    finally:
        if database is not source:
            database.close()
    if not found:
        raise LedgerError(_nothing(database.shown, since, bundle_hash, chosen))
    is_id = np.array([row.truth is not None for row in found])
    truth = np.array([OOD_LABEL if row.truth is None else row.truth for row in found])
    prediction = np.array([row.label for row in found])
    return ScoreTable.from_columns(
        s_id=np.array([row.s_id for row in found], dtype=np.float64),
        s_ood=np.array([row.s_ood for row in found], dtype=np.float64),
        is_id=is_id,
        correct=is_id & (truth == prediction),
        weight=_weights([row.propensity for row in found]) if chosen == "audit" else None,
        id=[item_id(row) for row in found],
        prediction=prediction,
        label=truth,
    )


def _labelled(database: Database, start: float, bundle: str | None, chosen: Chosen) -> Iterator[Any]:
    joined = decisions.join(labels, labels.c.decision == decisions.c.id)
    query = sa.select(*recorded, labels.c.label.label("truth")).select_from(joined)
    query = query.where(decisions.c.at >= start).order_by(decisions.c.id)
    if chosen == "audit":
        query = query.where(decisions.c.audit == 1)
    if bundle is not None:
        wanted = sa.select(sources.c.id).where(sources.c.bundle == bundle)
        query = query.where(decisions.c.source.in_(wanted))
    with database.read() as connection:
        yield from connection.execute(query)


def _weights(propensity: list[float]) -> np.ndarray | None:
    weight = 1.0 / np.array(propensity)
    return None if np.all(weight == weight[0]) else weight


def _nothing(shown: str, since: Since, bundle: str | None, chosen: Chosen) -> str:
    what = "audited and labelled" if chosen == "audit" else "labelled"
    which = "" if bundle is None else f" of bundle {bundle[:12]}…"
    when = "" if since is None else f" since {since}"
    return f"the ledger {shown} has no {what} decision{which}{when}; label what GET /v1/review hands out first"


def item_id(row: Any) -> str:
    """The id the caller saw."""
    return row.item_id if row.item_id is not None else f"{row.request_id}-{row.item}"


def export_rows(database: Database, since: Since = None) -> Iterator[dict[str, Any]]:
    """Every decision since a time with its label if it has one, oldest first, in bounded memory."""
    joined = decisions.join(sources, sources.c.id == decisions.c.source)
    joined = joined.outerjoin(labels, labels.c.decision == decisions.c.id)
    query = sa.select(
        *recorded, sources.c.bundle, sources.c.policy, labels.c.label.label("truth"), labels.c.is_ood, labels.c.wrong
    )
    query = query.select_from(joined).where(decisions.c.at >= since_time(since)).order_by(decisions.c.id)
    with database.read() as connection:
        for row in connection.execution_options(yield_per=2000).execute(query):
            yield _exported(row)


def kept_inputs(database: Database, since: Since = None) -> dict[str, np.ndarray]:
    """The inputs that were kept, as a data argument: `x`, `id`, and `y` (−1 for OOD, −2 without a label)."""
    joined = decisions.outerjoin(labels, labels.c.decision == decisions.c.id)
    query = sa.select(*recorded, decisions.c.input, labels.c.label.label("truth"), labels.c.is_ood)
    query = query.select_from(joined).where(decisions.c.at >= since_time(since), decisions.c.input.is_not(None))
    with database.read() as connection:
        rows = connection.execute(query.order_by(decisions.c.id)).all()
    if not rows:
        raise LedgerError(
            f"the ledger {database.shown} holds no inputs; they are kept when monitoring.ledger_inputs is audit or all"
        )
    x = [np.load(io.BytesIO(row.input), allow_pickle=False) for row in rows]
    if len({item.shape for item in x}) > 1:
        raise LedgerError(
            "the kept inputs differ in shape, so they do not fit into one array; narrow them with --since"
        )
    y = [UNLABELLED if row.is_ood is None else OOD_LABEL if row.is_ood else row.truth for row in rows]
    return {"x": np.stack(x), "y": np.array(y, dtype=np.int64), "id": np.array([item_id(row) for row in rows])}


def _exported(row: Any) -> dict[str, Any]:
    return {
        "id": item_id(row),
        "request_id": row.request_id,
        "item": row.item,
        "time": row.at,
        "bundle": row.bundle,
        "policy": row.policy,
        "prediction": row.label,
        "s_id": row.s_id,
        "s_ood": row.s_ood,
        "decision": "accept" if row.reason == 0 else "reject",
        "reason": REASONS[row.reason],
        "audit": bool(row.audit),
        "propensity": row.propensity,
        "label": row.truth,
        "is_ood": row.is_ood,
        "wrong": row.wrong,
    }
