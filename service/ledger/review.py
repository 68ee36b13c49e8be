"""What to label next: the audit draw first, then the rejects that came closest to being accepted.

A cursor names the last item that was handed out by its place in that order, so pages neither repeat nor skip an item
however many decisions and labels arrive in between.
"""

import base64
import binascii
from dataclasses import dataclass
from typing import Any, Literal

import orjson
import sqlalchemy as sa

from calibration.policy import REASONS
from service.ledger.engine import Database, LedgerError
from service.ledger.schema import decisions, recorded, sources

Why = Literal["audit", "near"]


class BadCursor(LedgerError):
    """The cursor was not made by this service."""


@dataclass(frozen=True)
class _Place:
    """The position after the last item: in the audit by id, among rejects by margin, then id."""

    why: Why = "audit"
    margin: float = 0.0
    id: int = 0

    def encode(self) -> str:
        return base64.urlsafe_b64encode(orjson.dumps([self.why, self.margin, self.id])).rstrip(b"=").decode()

    @classmethod
    def decode(cls, cursor: str) -> "_Place":
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            why, margin, id = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
            if why in {"audit", "near"} and isinstance(margin, int | float) and isinstance(id, int) and abs(id) < 2**63:
                return cls(why, float(margin), id)
        except (ValueError, TypeError, binascii.Error):
            pass
        raise BadCursor("this cursor is not one of ours; leave it out to start from the beginning")


@dataclass(frozen=True)
class Page:
    """Items to label and the cursor of the next page, None at the end."""

    items: list[dict[str, Any]]
    cursor: str | None


def review_page(database: Database, limit: int, cursor: str | None = None, bundle: str | None = None) -> Page:
    """The next items to label of a bundle, at most `limit`."""
    place = _Place() if not cursor else _Place.decode(cursor)
    found: list[Any] = []
    with database.read() as connection:
        wanted = _sources(connection, bundle)
        if place.why == "audit":
            found = list(connection.execute(_audited(wanted, place.id, limit)))
            if found:
                place = _Place("audit", 0.0, found[-1].id)
        missing = limit - len(found)
        if missing:
            start = place if place.why == "near" else _Place("near", float("-inf"), 0)
            rest = list(connection.execute(_nearest(wanted, start, missing)))
            if rest:
                place = _Place("near", rest[-1].margin, rest[-1].id)
            found += rest
    ended = len(found) < limit
    return Page([_item(row) for row in found], None if ended else place.encode())


def _sources(connection: sa.Connection, bundle: str | None) -> list[int]:
    query = sa.select(sources.c.id)
    if bundle is not None:
        query = query.where(sources.c.bundle == bundle)
    return [int(id) for id in connection.execute(query).scalars()]


def _query(wanted: list[int]) -> sa.Select[Any]:
    joined = decisions.join(sources, sources.c.id == decisions.c.source)
    query = sa.select(*recorded, sources.c.policy).select_from(joined)
    return query.where(decisions.c.labelled == 0, decisions.c.source.in_(wanted), ~_decided_again())


def _decided_again() -> sa.ColumnElement[bool]:
    """Whether the same item was sent again later: a label is given to the latest decision of an id, so an earlier one
    would never leave the list."""
    later = decisions.alias("later")
    named = sa.and_(decisions.c.item_id.is_not(None), later.c.item_id == decisions.c.item_id)
    unnamed = sa.and_(
        decisions.c.item_id.is_(None),
        later.c.item_id.is_(None),
        later.c.request_id == decisions.c.request_id,
        later.c.item == decisions.c.item,
    )
    again = sa.select(sa.literal(1)).select_from(later).where(later.c.id > decisions.c.id)
    return sa.or_(again.where(named).correlate(decisions).exists(), again.where(unnamed).correlate(decisions).exists())


def _audited(wanted: list[int], after: int, limit: int) -> sa.Select[Any]:
    query = _query(wanted).where(decisions.c.audit == 1, decisions.c.id > after)
    return query.order_by(decisions.c.id).limit(limit)


def _nearest(wanted: list[int], after: _Place, limit: int) -> sa.Select[Any]:
    margin, id = decisions.c.margin, decisions.c.id
    query = _query(wanted).where(margin.is_not(None), decisions.c.audit == 0)
    if after.margin > float("-inf"):
        query = query.where(sa.or_(margin > after.margin, sa.and_(margin == after.margin, id > after.id)))
    return query.order_by(margin, id).limit(limit)


def _item(row: Any) -> dict[str, Any]:
    return {
        "id": row.item_id if row.item_id is not None else f"{row.request_id}-{row.item}",
        "request_id": row.request_id,
        "item": row.item,
        "why": "audit" if row.audit else "near",
        "time": row.at,
        "label": row.label,
        "s_id": row.s_id,
        "s_ood": row.s_ood,
        "decision": "accept" if row.reason == 0 else "reject",
        "reason": REASONS[row.reason],
        "policy": row.policy,
        "propensity": row.propensity,
        "margin": row.margin,
    }
