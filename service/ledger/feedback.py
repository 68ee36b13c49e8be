"""Delayed labels: durable before they are acknowledged, idempotent, and never silently contradicted."""

import re
import time
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from service.ledger.engine import Database, LedgerError
from service.ledger.schema import decisions, labels, recorded, tallies

Outcome = Literal["recorded", "unchanged", "replaced"]
_OWN_ID = re.compile(r"(.+)-(\d{1,9})", re.DOTALL)


class UnknownDecision(LedgerError):
    """No decision has this id."""


class AmbiguousDecision(LedgerError):
    """The request had several items and none was named."""


class ConflictingLabel(LedgerError):
    """The decision has another label already."""


@dataclass(frozen=True)
class Target:
    """Which decision is meant: an item's id, or a request and, if it had several items, the item's position."""

    id: str | None = None
    request_id: str | None = None
    item: int | None = None

    @property
    def shown(self) -> str:
        """As it was asked for."""
        if self.id is not None:
            return f"id {self.id!r}"
        return f"request_id {self.request_id!r}" + ("" if self.item is None else f", item {self.item}")


@dataclass(frozen=True)
class Recorded:
    """What became of a label."""

    outcome: Outcome
    request_id: str
    item: int
    prediction: int
    accepted: bool
    audit: bool
    wrong: bool


def give_label(
    database: Database, target: Target, *, label: int | None, replace: bool = False, now: float | None = None
) -> Recorded:
    """Record the true class of a decision, `None` for OOD; on disk when this returns.

    The same label again changes nothing. Another one is refused unless `replace`; the latest decision counts when
    an id was used more than once.
    """
    with database.write() as connection:
        decision = _find(connection, target)
        if not database.sqlite:
            locked = sa.select(decisions.c.id).where(decisions.c.id == decision.id).with_for_update()
            if connection.execute(locked).scalar() is None:
                raise _unknown(target)  # pruned a moment ago: a label without its decision would be lost
        known = connection.execute(sa.select(labels).where(labels.c.decision == decision.id)).one_or_none()
        wrong = label is None or label != decision.label
        if known is not None and known.label == label:
            return _recorded("unchanged", decision, wrong)
        if known is not None and not replace:
            raise ConflictingLabel(
                f"the decision {target.shown} is labelled {_named(known.label)} already and {_named(label)} arrived; "
                "send replace: true to correct it"
            )
        _store(connection, decision, label, wrong, known is not None, time.time() if now is None else now)
        if decision.audit and decision.reason == 0:
            counted = 0 if known is not None else 1
            errors = int(wrong) - (int(known.wrong) if known is not None else 0)
            _count(connection, database, decision.source, counted, errors)
        return _recorded("recorded" if known is None else "replaced", decision, wrong)


def _find(connection: sa.Connection, target: Target) -> Any:
    found = None
    if "\0" in f"{target.id}{target.request_id}":
        raise _unknown(target)  # PostgreSQL's text cannot hold it, so no decision has it
    if target.id is not None:
        found = _latest(connection, decisions.c.item_id == target.id)
        own = _OWN_ID.fullmatch(target.id)
        if found is None and own is not None:
            where = sa.and_(decisions.c.request_id == own[1], decisions.c.item == int(own[2]))
            found = _latest(connection, sa.and_(where, decisions.c.item_id.is_(None)))
    elif target.item is not None:
        where = sa.and_(decisions.c.request_id == target.request_id, decisions.c.item == target.item)
        found = _latest(connection, where)
    else:
        found = _latest(connection, decisions.c.request_id == target.request_id)
        if found is not None and found.item != 0:
            raise AmbiguousDecision(
                f"the request {target.request_id!r} had {found.item + 1} items; say which one with item or id"
            )
    if found is None:
        raise _unknown(target)
    return found


def _unknown(target: Target) -> UnknownDecision:
    return UnknownDecision(f"no decision with {target.shown} is in the ledger: it is unknown, pruned or was lost")


def _latest(connection: sa.Connection, where: Any) -> Any:
    return connection.execute(sa.select(*recorded).where(where).order_by(decisions.c.id.desc()).limit(1)).one_or_none()


def _store(connection: sa.Connection, decision: Any, label: int | None, wrong: bool, again: bool, now: float) -> None:
    values = {"label": label, "is_ood": label is None, "wrong": wrong, "at": now}
    if again:
        change = labels.update().where(labels.c.decision == decision.id)
        connection.execute(change.values(**values, revisions=labels.c.revisions + 1))
        return
    connection.execute(labels.insert().values(decision=decision.id, **values))
    connection.execute(decisions.update().where(decisions.c.id == decision.id).values(labelled=1))


def _count(connection: sa.Connection, database: Database, source: int, labelled: int, wrong: int) -> None:
    dialect = sqlite if database.sqlite else postgresql
    insert = dialect.insert(tallies).values(source=source, labelled=labelled, wrong=wrong)
    added = {"labelled": tallies.c.labelled + labelled, "wrong": tallies.c.wrong + wrong}
    connection.execute(insert.on_conflict_do_update(index_elements=[tallies.c.source], set_=added))


def audit_totals(database: Database, source: int) -> tuple[int, int]:
    """(labelled, wrong) of audited, accepted decisions of a source."""
    query = sa.select(tallies.c.labelled, tallies.c.wrong).where(tallies.c.source == source)
    with database.read() as connection:
        found = connection.execute(query).one_or_none()
    return (0, 0) if found is None else (int(found.labelled), int(found.wrong))


def _recorded(outcome: Outcome, decision: Any, wrong: bool) -> Recorded:
    accepted, audit = decision.reason == 0, bool(decision.audit)
    return Recorded(outcome, decision.request_id, decision.item, decision.label, accepted, audit, wrong)


def _named(label: int | None) -> str:
    return "OOD" if label is None else f"class {label}"
