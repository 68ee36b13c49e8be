"""The ledger in SQLite and in a real PostgreSQL: decisions, labels, review, pruning, score tables."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from calibration.policy import Policy
from service.gate import DecisionBatch
from service.ledger import Database, LedgerError, score_table
from service.ledger.feedback import (
    AmbiguousDecision,
    ConflictingLabel,
    Target,
    UnknownDecision,
    audit_totals,
    give_label,
)
from service.ledger.files import write_npz
from service.ledger.keeping import Limits, prune, stats, used_bytes
from service.ledger.review import BadCursor, review_page
from service.ledger.tables import export_rows, kept_inputs, since_time
from service.ledger.writing import Kept, append, rows
from service.monitoring.audit import Audit
from service.monitoring.tally import Group

BUNDLE = "b" * 64
DAY = 86400.0
EVERYTHING, NOTHING = Audit("ab" * 16, 1.0, 1.0), Audit("ab" * 16, 0.0, 0.0)
POLICY = Policy(tau_id=0.0, tau_ood=0.0, number=3)


@pytest.fixture
def database(ledger_url: str) -> Iterator[Database]:
    database = Database(ledger_url)
    yield database
    database.close()


def _batch(
    request_id: str, s_id: list[float], *, ids: list[str] | None = None, label: int = 1, at: float | None = None
) -> DecisionBatch:
    a = np.array(s_id)
    b = np.ones(len(a))
    accept, reason = POLICY.decide(a, b)
    own = ids or [f"{request_id}-{i}" for i in range(len(a))]
    at = time.time() if at is None else at
    return DecisionBatch(request_id, own, at, np.full(len(a), label), a, b, accept, reason, POLICY, 0.001, len(a))


def _write(database: Database, *batches: DecisionBatch, audit: Audit = EVERYTHING, bundle: str = BUNDLE) -> None:
    append(database, rows(Group.of(list(batches)), database.source(bundle, 3), audit))


def _by_id(id: str) -> Target:
    return Target(id=id)


def test_every_decision_is_kept_as_it_was_made(database: Database) -> None:
    _write(database, _batch("r1", [1.0, -2.0, float("nan")], at=100.5), _batch("r2", [3.0], ids=["mine"], at=101.5))
    found = list(export_rows(database))
    assert [row["id"] for row in found] == ["r1-0", "r1-1", "r1-2", "mine"]
    assert [row["decision"] for row in found] == ["accept", "reject", "reject", "accept"]
    assert [row["reason"] for row in found] == [None, "low_id", "not_finite", None]
    assert [row["s_id"] for row in found] == [1.0, -2.0, None, 3.0]
    assert [row["time"] for row in found] == [100.5, 100.5, 100.5, 101.5]
    assert {row["policy"] for row in found} == {3}
    assert all(row["audit"] and row["propensity"] == 1.0 and row["label"] is None for row in found)


def test_a_label_is_recorded_once_and_contradiction_refused(database: Database) -> None:
    _write(database, _batch("r1", [1.0]))
    first = give_label(database, _by_id("r1-0"), label=1)
    assert (first.outcome, first.wrong, first.audit, first.accepted) == ("recorded", False, True, True)
    assert give_label(database, _by_id("r1-0"), label=1).outcome == "unchanged"
    with pytest.raises(ConflictingLabel, match="class 1 already and OOD arrived"):
        give_label(database, _by_id("r1-0"), label=None)
    source = database.source(BUNDLE, 3)
    assert audit_totals(database, source) == (1, 0)
    assert give_label(database, _by_id("r1-0"), label=None, replace=True).outcome == "replaced"
    assert give_label(database, _by_id("r1-0"), label=None, replace=True).outcome == "unchanged"
    assert audit_totals(database, source) == (1, 1)
    give_label(database, _by_id("r1-0"), label=1, replace=True)
    assert audit_totals(database, source) == (1, 0)


def test_only_audited_accepted_items_count_for_the_risk(database: Database) -> None:
    _write(database, _batch("a", [1.0, -1.0]))
    _write(database, _batch("b", [1.0]), audit=NOTHING)
    for id in ("a-0", "a-1", "b-0"):
        give_label(database, _by_id(id), label=2)
    assert audit_totals(database, database.source(BUNDLE, 3)) == (1, 1)


def test_decisions_are_found_by_item_or_request(database: Database) -> None:
    _write(database, _batch("one", [1.0]), _batch("two", [1.0, 1.0]), _batch("x-1", [1.0], ids=["a-b-7"]))
    assert give_label(database, Target(request_id="one"), label=1).item == 0
    assert give_label(database, Target(request_id="two", item=1), label=1).item == 1
    assert give_label(database, _by_id("a-b-7"), label=1).request_id == "x-1"
    with pytest.raises(AmbiguousDecision, match="had 2 items"):
        give_label(database, Target(request_id="two"), label=1)
    for unknown in (_by_id("nope"), _by_id("one-5"), _by_id("x-1-0"), Target(request_id="two", item=9)):
        with pytest.raises(UnknownDecision):
            give_label(database, unknown, label=1)


def test_an_id_used_twice_means_the_latest(database: Database) -> None:
    _write(database, _batch("r", [1.0], ids=["same"], label=1), _batch("s", [1.0], ids=["same"], label=2))
    assert give_label(database, _by_id("same"), label=2).request_id == "s"


def test_labels_given_at_the_same_time_are_counted_once(database: Database) -> None:
    """Eight labellers, the same fifteen items: every item is recorded exactly once and the tally is exact."""
    _write(database, _batch("r", [1.0] * 15))
    outcomes: list[str] = []

    def label() -> None:
        outcomes.extend(give_label(database, _by_id(f"r-{i}"), label=2).outcome for i in range(15))

    threads = [threading.Thread(target=label) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("recorded") == 15
    assert outcomes.count("unchanged") == 7 * 15
    assert audit_totals(database, database.source(BUNDLE, 3)) == (15, 15)


def test_review_hands_out_the_audit_first_then_the_nearest_rejects(database: Database) -> None:
    _write(database, _batch("a", [-3.0, -1.0, -2.0, 1.0]), audit=NOTHING)
    _write(database, _batch("b", [1.0, -9.0]))
    _write(database, _batch("c", [float("nan")]), audit=NOTHING)
    page = review_page(database, 10, bundle=BUNDLE)
    assert [(item["id"], item["why"]) for item in page.items] == [
        ("b-0", "audit"), ("b-1", "audit"), ("a-1", "near"), ("a-2", "near"), ("a-0", "near"),
    ]  # fmt: skip
    assert page.cursor is None
    assert [item["margin"] for item in page.items[2:]] == [1.0, 2.0, 3.0]


def test_review_pages_neither_repeat_nor_skip_while_work_goes_on(database: Database) -> None:
    _write(database, _batch("a", [1.0, -1.0, 1.0, -0.5]))
    _write(database, _batch("n", [-5.0, -1.5, -1.5, -0.2, 1.0]), audit=NOTHING)
    seen: list[str] = []
    cursor = None
    for round in range(20):
        page = review_page(database, 2, cursor, BUNDLE)
        seen += [item["id"] for item in page.items]
        if page.cursor is None:
            break
        cursor = page.cursor
        give_label(database, _by_id(seen[-1]), label=1)
        _write(database, _batch(f"late{round}", [-0.1]), audit=NOTHING)  # nearer than the cursor: on the next round
    assert seen[:4] == ["a-0", "a-1", "a-2", "a-3"]
    expected = ["n-3", "n-1", "n-2", "n-0"]
    assert [id for id in seen[4:] if not id.startswith("late")] == expected
    assert len(seen) == len(set(seen))


def test_review_leaves_out_other_bundles_and_labelled_items(database: Database) -> None:
    _write(database, _batch("a", [1.0, 1.0]))
    _write(database, _batch("other", [1.0]), bundle="c" * 64)
    give_label(database, _by_id("a-0"), label=1)
    assert [item["id"] for item in review_page(database, 10, bundle=BUNDLE).items] == ["a-1"]
    assert len(review_page(database, 10).items) == 2


def test_review_hands_out_an_item_that_was_sent_again_once(
    database: Database,
) -> None:
    """A label goes to the latest decision of an id: an earlier one would be handed out for ever."""
    for _ in range(3):
        _write(database, _batch("retry", [1.0, -1.0]), _batch("r", [1.0], ids=["mine"]))
        _write(database, _batch("near", [-1.0]), _batch("n", [-1.0], ids=["other"]), audit=NOTHING)
    found = review_page(database, 10, bundle=BUNDLE).items
    assert [item["id"] for item in found] == ["retry-0", "retry-1", "mine", "near-0", "other"]
    for item in found:
        assert give_label(database, _by_id(item["id"]), label=1).outcome == "recorded"
    assert review_page(database, 10, bundle=BUNDLE).items == []


@pytest.mark.parametrize("cursor", ["x", "!!!", "WyJhdWRpdCJd", "e30", "WyJib3RoIiwwLDBd", "\x00", "W251bGwsMCwwXQ"])
def test_a_cursor_of_somebody_else_is_refused(database: Database, cursor: str) -> None:
    with pytest.raises(BadCursor, match="not one of ours"):
        review_page(database, 10, cursor)


def test_old_decisions_go_and_labelled_ones_stay_longer(database: Database) -> None:
    now = 1000 * DAY
    ages = [400, 100, 40, 31, 29, 1]
    for age in ages:
        _write(database, _batch(f"age{age}", [1.0, 1.0], at=now - age * DAY))
        give_label(database, _by_id(f"age{age}-1"), label=1)
    assert prune(database, Limits(30, 365), now) == 5
    left = [row["id"] for row in export_rows(database)]
    assert left == ["age100-1", "age40-1", "age31-1", "age29-0", "age29-1", "age1-0", "age1-1"]
    with database.read() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM labels")).scalar() == 5
    assert prune(database, Limits(30, 365), now) == 0
    assert audit_totals(database, database.source(BUNDLE, 3)) == (6, 0)  # what was learnt is not forgotten


def test_too_many_rows_are_cut_to_size_in_chunks(database: Database) -> None:
    for start in range(0, 12_000, 2000):
        _write(database, _batch(f"r{start}", [1.0] * 2000))
    assert prune(database, Limits(30, 365, max_rows=1000)) == 11_000
    assert stats(database)["decisions"] == 1000
    assert prune(database, Limits(30, 365, max_rows=1000)) == 0


def test_a_file_that_grew_too_large_shrinks_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    database = Database(path)
    for start in range(20):
        _write(database, _batch(f"r{start}", [1.0] * 1000))
    before = used_bytes(database)
    limit = before // 3
    assert prune(database, Limits(30, 365, max_bytes=limit)) > 10_000
    assert used_bytes(database) <= limit
    database.close()  # the last one to leave brings the write-ahead log home
    assert path.stat().st_size <= limit
    assert prune(Database(path), Limits(30, 365, max_bytes=limit)) == 0


def test_stats_count_by_policy_and_reason(database: Database) -> None:
    _write(database, _batch("r", [1.0, 1.0, -1.0], at=50.0))
    give_label(database, _by_id("r-0"), label=0)
    found = stats(database)
    assert found["decisions"] == 3
    assert found["bytes"] > 0
    assert found["policies"] == [
        {
            "bundle": BUNDLE, "policy": 3, "decisions": 3, "accepted": 2, "rejected": {"low_id": 1}, "audit": 3,
            "labelled": 1, "first": 50.0, "last": 50.0, "audit_labels": {"labelled": 1, "wrong": 1},
        }
    ]  # fmt: skip


def test_a_score_table_weighs_by_propensity(database: Database, ledger_url: str) -> None:
    rare = Audit("ab" * 16, 0.25, 1.0)
    _write(database, _batch("r", [1.0] * 40 + [-1.0] * 10), audit=rare)
    _write(database, _batch("unasked", [1.0]), audit=NOTHING)
    _write(database, _batch("other", [1.0]), bundle="c" * 64)
    drawn = [item for item in review_page(database, 500, bundle=BUNDLE).items if item["why"] == "audit"]
    for item in drawn:
        give_label(database, _by_id(item["id"]), label=1 if item["decision"] == "accept" else None)
    give_label(database, _by_id("unasked-0"), label=1)
    give_label(database, _by_id("other-0"), label=1)
    table = score_table(ledger_url, "1h", BUNDLE)
    assert len(table) == len(drawn)
    assert table.n_ood == 10
    assert table.correct.sum() == len(drawn) - 10
    assert table.weight is not None
    assert set(table.weight[table.is_id]) == {4.0}
    assert set(table.weight[~table.is_id]) == {1.0}
    assert table.id is not None
    assert set(table.id) == {item["id"] for item in drawn}
    everything = score_table(ledger_url, None, BUNDLE, chosen="all")
    assert len(everything) == len(drawn) + 1
    assert everything.weight is None
    with pytest.raises(LedgerError, match="no audited and labelled decision"):
        score_table(ledger_url, 2e9, BUNDLE)


def test_equal_propensities_need_no_weights(database: Database, ledger_url: str) -> None:
    _write(database, _batch("r", [1.0, -1.0]))
    give_label(database, _by_id("r-0"), label=1)
    give_label(database, _by_id("r-1"), label=1)
    assert score_table(ledger_url).weight is None


def test_workers_may_open_a_new_ledger_at_the_same_time(ledger_url: str) -> None:
    opened: list[Database] = []
    failed: list[BaseException] = []

    def start() -> None:
        try:
            opened.append(Database(ledger_url))
        except BaseException as fault:
            failed.append(fault)

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len({database.source(BUNDLE, 3) for database in opened}) == 1
    with opened[0].read() as connection:
        salts = {Database.fact(connection, "audit_salt")}
    assert len(salts) == 1
    for database in opened:
        database.close()


def test_a_ledger_of_another_schema_is_refused(database: Database, ledger_url: str) -> None:
    with database.write() as connection:
        connection.execute(sa.text("UPDATE facts SET value = '99' WHERE name = 'schema'"))
    with pytest.raises(LedgerError, match="schema 99"):
        Database(ledger_url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://x/y", "SQLite or PostgreSQL"),
        ("not a url://", "cannot be read"),
        ("postgresql://nobody@127.0.0.1:1/x", "cannot be opened"),
        ("/no/such/dir/ledger.sqlite", "no ledger at"),
    ],
)
def test_a_ledger_that_cannot_be_opened_is_one_sentence(url: str, said: str) -> None:
    with pytest.raises(LedgerError, match=said) as refusal:
        Database(url, create=False)
    assert "\n" not in str(refusal.value)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(LedgerError) as refusal:
        Database("postgresql://user:hunter2@127.0.0.1:1/x")
    assert "hunter2" not in str(refusal.value)


def test_since_is_a_span_a_date_or_a_time() -> None:
    assert since_time("7d", now=10 * DAY) == 3 * DAY
    assert since_time("1.5h", now=7200.0) == 1800.0
    assert since_time("1970-01-02") == DAY
    assert since_time(None) == 0.0
    with pytest.raises(LedgerError, match="'soon' arrived"):
        since_time("soon")


def test_the_audit_draw_is_a_fixed_share_and_the_same_every_time() -> None:
    ids = [f"img-{i:06d}" for i in range(40_000)]
    accept = [i % 2 == 0 for i in range(40_000)]
    flags, propensities = Audit("cd" * 16, 0.05, 0.2).draw(ids, accept)
    again, _ = Audit("cd" * 16, 0.05, 0.2).draw(ids[::-1], accept[::-1])
    assert flags == again[::-1]
    drawn = np.array(flags).reshape(-1, 2).mean(axis=0)
    assert drawn == pytest.approx([0.05, 0.2], abs=0.01)
    assert propensities[:2] == [0.05, 0.2]
    other, _ = Audit("ef" * 16, 0.05, 0.2).draw(ids, accept)
    assert flags != other
    assert sum(Audit("cd" * 16, 1.0, 0.0).draw(ids, accept)[0]) == 20_000


@pytest.mark.parametrize(("kept", "places"), [("none", []), ("audit", [1]), ("all", [0, 1, 2])])
def test_inputs_are_kept_only_when_asked(database: Database, tmp_path: Path, kept: Kept, places: list[int]) -> None:
    """And come back as a data argument, with the label that was given."""

    class Second(Audit):
        def draw(self, ids: list[str], accept: list[bool]) -> tuple[list[int], list[float]]:
            return [int(id == "r-1") for id in ids], [0.5] * len(ids)

    batch = _batch("r", [1.0, 2.0, -1.0])
    batch.inputs = np.arange(12, dtype=np.float32).reshape(3, 4)
    drawn = Second("ab" * 16, 0.5, 0.5)
    append(database, rows(Group.of([batch]), database.source(BUNDLE, 3), drawn, kept))
    if not places:
        with pytest.raises(LedgerError, match="holds no inputs"):
            kept_inputs(database)
        return
    give_label(database, _by_id("r-1"), label=4)
    write_npz(tmp_path / "inputs.npz", kept_inputs(database))
    with np.load(tmp_path / "inputs.npz", allow_pickle=False) as found:
        assert found["id"].tolist() == [f"r-{i}" for i in places]
        np.testing.assert_array_equal(found["x"], batch.inputs[places])
        assert found["y"].tolist() == [4 if i == 1 else -2 for i in places]
