"""`airlock calibrate`, `recalibrate` and `policies` as a user runs them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.echo import WIDTH, save_echo_bundle

from calibration.policy import Policy
from calibration.store import PolicyStore
from calibration.table import ScoreTable
from models.bundle import Bundle
from models.inputs import TensorInput
from service.cli import main
from service.commands.policy_fate import keep


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Airlock = Callable[..., Result]


@pytest.fixture
def airlock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Airlock:
    """Run the command in this process."""
    for name in ("AIRLOCK_STATE_DIR", "AIRLOCK_MONITORING__LEDGER_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Result:
        monkeypatch.setattr("sys.argv", ["airlock", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Result(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def table_path(table: ScoreTable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table.write(tmp_path_factory.mktemp("tables") / "scores.parquet")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """A bundle that echoes the scores written into its inputs."""
    return save_echo_bundle(tmp_path / "bundle", TensorInput(shape=(WIDTH,)))


def save_inputs(folder: Path, table: ScoreTable) -> list[str]:
    """Inputs that the echo bundle turns back into the table, as `--id` and `--ood` arguments."""
    x = np.zeros((len(table), WIDTH), dtype=np.float32)
    x[:, 0], x[:, 1] = table.s_id, table.s_ood
    y = np.where(table.correct, 0, 1)
    x[:, 2] = 1.0  # predicts class 0
    folder.mkdir(exist_ok=True)
    np.savez(folder / "id.npz", x=x[table.is_id], y=y[table.is_id])
    assert table.group is not None
    for group in ("near", "far"):
        np.save(folder / f"{group}.npy", x[table.group == group])
    return [
        *("--id", str(folder / "id.npz")),
        *("--ood", f"near={folder / 'near.npy'}"),
        *("--ood", str(folder / "far.npy")),
    ]


def test_a_table_becomes_a_policy_file(airlock: Airlock, table_path: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy.json"
    found = airlock("calibrate", "--table", table_path, "--out", out)
    assert found.code == 0, found.err
    assert found.err == ""
    first = found.out.splitlines()[0]
    assert "dsf1" in first
    assert "validated" in first
    for part in ("thresholds", "held out", "of all it accepts", "OOD budget", "s_id alone", "near → far"):
        assert part in found.out
    assert len(found.out.splitlines()) < 20
    assert Policy.read(out).status == "validated"


def test_json_holds_the_policy_and_nothing_else_is_printed(airlock: Airlock, table_path: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    found = airlock("calibrate", "--table", table_path, "--store", store, "--method", "certified", "--json")
    document = found.json
    assert found.err == ""
    stored = PolicyStore(store).get(1)
    assert document["policy"]["tau_id"] == stored.tau_id
    assert document["policy"]["tau_ood"] == stored.tau_ood
    assert document["policy"]["certificate"]["kind"] == "pareto"
    assert document["active"] is True
    assert document["stored"] == str(store / "0001.json")
    assert Policy.from_mapping(document["policy"]) == stored


def test_csv_and_several_tables_are_one(airlock: Airlock, table: ScoreTable, tmp_path: Path) -> None:
    whole = table.write(tmp_path / "whole.csv")
    parts = [
        table.take(table.is_id == flag).write(tmp_path / f"{name}.csv") for flag, name in ((True, "id"), (False, "ood"))
    ]
    one = airlock("calibrate", "--table", whole, "--out", tmp_path / "a.json", "--json").json["policy"]
    two = airlock("calibrate", "--table", parts[0], "--table", parts[1], "--out", tmp_path / "b.json", "--json").json
    assert (one["tau_id"], one["tau_ood"]) == (two["policy"]["tau_id"], two["policy"]["tau_ood"])


def test_a_bundle_is_calibrated_on_its_own_scores(
    airlock: Airlock, bundle: Bundle, table: ScoreTable, tmp_path: Path
) -> None:
    data = save_inputs(tmp_path / "data", table)
    document = airlock("calibrate", bundle.path, *data, "--method", "tpr", "--json").json
    policy = document["policy"]
    assert policy["bundle"] == bundle.hash
    assert policy["scores"] == {"s_id": "first", "s_ood": "second"}
    assert set(policy["data"]["groups"]) == {"id", "near", "far"}
    assert (policy["data"]["n_id"], policy["data"]["n_ood"]) == (table.n_id, table.n_ood)
    assert policy["data"]["accuracy"] == pytest.approx(table.correct.sum() / table.n_id)
    assert np.float32(policy["tau_id"]) == policy["tau_id"]
    store = PolicyStore(bundle.policies_dir, bundle.hash)
    active = store.active()
    assert active is not None
    assert active.tau_ood in np.asarray(table.s_ood, dtype=np.float32)


def test_inputs_that_are_not_finite_count_and_are_never_accepted(
    airlock: Airlock, bundle: Bundle, table: ScoreTable, tmp_path: Path
) -> None:
    data = save_inputs(tmp_path / "data", table)
    far = np.load(tmp_path / "data" / "far.npy")
    far[:7, 1] = np.nan
    np.save(tmp_path / "data" / "far.npy", far)
    policy = airlock("calibrate", bundle.path, *data, "--json").json["policy"]
    assert policy["data"]["not_finite"] == 7


def test_unlabelled_id_data_is_refused(airlock: Airlock, bundle: Bundle, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((200, WIDTH), dtype=np.float32))
    found = airlock("calibrate", bundle.path, "--id", tmp_path / "x.npy")
    assert found.code == 1
    assert "has no labels; --id needs the true class" in found.err
    assert PolicyStore(bundle.policies_dir).list() == []


def test_the_first_validated_policy_is_active_and_later_ones_wait(
    airlock: Airlock, table_path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first, second = (airlock("calibrate", "--table", table_path, "--store", store, "--json").json for _ in range(2))
    assert (first["active"], second["active"]) == (True, False)
    third = airlock("calibrate", "--table", table_path, "--store", store, "--activate", "--json").json
    assert third["active"]
    assert PolicyStore(store).pointer().active == 3  # type: ignore[union-attr]
    unused = airlock("calibrate", "--table", table_path, "--store", tmp_path / "o", "--no-activate", "--json").json
    assert not unused["active"]


def test_a_rejected_policy_is_stored_and_not_active_and_the_code_is_1(
    airlock: Airlock, table_path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    base = ("calibrate", "--table", table_path, "--store", store, "--risk", 0.001)
    found = airlock(*base, "--json")
    assert found.code == 1
    assert found.err.startswith("airlock: policy 0001 is rejected: claimed selective risk ≤ 0.1 %")
    assert found.json["policy"]["status"] == "rejected"
    assert PolicyStore(store).active() is None
    ordered = airlock(*base, "--activate")
    assert ordered.code == 1
    assert "--force" in ordered.err
    assert PolicyStore(store).active() is None
    forced = airlock(*base, "--activate", "--force", "--json")
    assert forced.json["active"]
    assert PolicyStore(store).history()[-1].forced


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "p.json"], "nothing to calibrate on"),
        (["--id", "x.npz", "--out", "p.json"], "need a BUNDLE"),
        (["--table", "TABLE", "--table", "TABLE", "--out", "p.json"], "is given twice"),
        (["--table", "TABLE"], "nowhere to put the policy"),
        (["--table", "TABLE", "--out", "p.json", "--activate"], "--activate needs a BUNDLE or --store"),
        (["--table", "TABLE", "--out", "p.json", "--risk", "1.5"], "--risk"),
        (["--table", "TABLE", "--out", "p.json", "--method", "best"], "--method"),
    ],
)
def test_wrong_usage_is_code_2(airlock: Airlock, table_path: Path, arguments: list[str], message: str) -> None:
    found = airlock("calibrate", *[str(table_path) if word == "TABLE" else word for word in arguments])
    assert found.code == 2
    assert message in found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "80"], "--split takes 2 positive shares"),
        (["--method", "certified", "--risk", "0.001"], "bring at least"),
        (["--per-class"], "column 'prediction'"),
    ],
)
def test_a_refusal_is_one_sentence_code_1_and_leaves_nothing(
    airlock: Airlock, table_path: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out, store = tmp_path / "p.json", tmp_path / "store"
    found = airlock("calibrate", "--table", table_path, "--out", out, "--store", store, *arguments)
    assert found.code == 1
    assert found.err.startswith("airlock: ")
    assert found.err.count("\n") == 1
    assert message in found.err
    assert found.out == ""
    assert not out.exists()
    assert PolicyStore(store).list() == []


def test_an_out_that_cannot_be_written_leaves_the_store_alone(
    airlock: Airlock, table_path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    found = airlock("calibrate", "--table", table_path, "--store", store, "--out", tmp_path / "no" / "p.json")
    assert found.code == 1
    assert "does not exist" in found.err
    assert PolicyStore(store).list() == []


def test_the_advice_can_be_pasted_even_with_a_space_in_the_path(
    airlock: Airlock, table_path: Path, tmp_path: Path
) -> None:
    store = tmp_path / "my store"
    found = airlock("calibrate", "--table", table_path, "--store", store, "--no-activate")
    assert f"airlock policies '{store}' activate 1" in found.out


def test_recalibrate_on_id_alone_does_not_open_the_ood_door(
    airlock: Airlock, table_path: Path, make: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    airlock("calibrate", "--table", table_path, "--store", store)
    id_only = make(ood=0.0, seed=8).write(tmp_path / "id.parquet")
    found = airlock("recalibrate", "--store", store, "--table", id_only)
    assert found.code == 0, found.err
    assert "no OOD" in found.out
    assert PolicyStore(store).pointer().active == 1  # type: ignore[union-attr]
    ordered = airlock("recalibrate", "--store", store, "--table", id_only, "--activate", "--json")
    assert ordered.json["active"]


def test_recalibrate_keeps_what_is_no_worse(airlock: Airlock, table_path: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    airlock("calibrate", "--table", table_path, "--store", store, "--seed", 3)
    found = airlock("recalibrate", "--store", store, "--table", table_path)
    assert found.code == 0, found.err
    assert "not better: F1 +0.0000" in found.out
    assert "none of 1,500 decisions changes" in found.out
    assert PolicyStore(store).pointer().active == 1  # type: ignore[union-attr]
    again = PolicyStore(store).get(2)
    assert (again.method, again.parameters["seed"]) == ("dsf1", 3)


def test_recalibrate_replaces_a_policy_that_the_world_left_behind(
    airlock: Airlock, table_path: Path, make: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    airlock("calibrate", "--table", table_path, "--store", store, "--method", "certified", "--risk", 0.08)
    drifted = make(4000, seed=9)
    moved = ScoreTable(**(drifted.columns() | {"s_id": drifted.s_id + 2.5, "s_ood": drifted.s_ood + 2.0}))
    found = airlock("recalibrate", "--store", store, "--table", moved.write(tmp_path / "new.parquet"), "--json")
    document = found.json
    assert document["active"]
    assert document["compared_with"] == 1
    assert document["comparison"]["better"]
    assert "breaks the risk limit" in document["comparison"]["why"]
    assert document["policy"]["method"] == "certified"
    assert document["policy"]["certificate"]["risk"] == 0.08
    comparison = document["comparison"]
    assert document["diff"].startswith(f"{comparison['changed']:,} of {comparison['n']:,} decisions change: ")


def test_a_switch_while_recalibrating_has_the_last_word(tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    for number in (1, 2):
        store.add(Policy(tau_id=0.0, tau_ood=0.0))
        store.activate(number)
    store.rollback()  # while a policy was compared with number 2
    new = Policy(tau_id=1.0, tau_ood=0.0, status="validated")
    _, fate = keep(store, new, activate=None, force=False, better=True, than=2)
    assert not fate.active
    assert "not active since policy 1 became so meanwhile; switch with:" in fate.text
    assert keep(store, new, activate=None, force=False, better=True, than=1)[1].active
    assert keep(store, new, activate=True, force=False, better=True, than=1)[1].active


def test_recalibrate_obeys_orders(airlock: Airlock, table_path: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for _ in range(2):
        airlock("recalibrate", "--store", store, "--table", table_path, "--method", "coverage", "--activate")
    assert PolicyStore(store).pointer().active == 2  # type: ignore[union-attr]
    airlock("recalibrate", "--store", store, "--table", table_path, "--method", "dsf1", "--no-activate")
    assert PolicyStore(store).pointer().active == 2  # type: ignore[union-attr]
    assert [policy.method for policy in PolicyStore(store).list()] == ["coverage", "coverage", "dsf1"]


def test_recalibrate_refuses_what_it_cannot_do(airlock: Airlock, table_path: Path, tmp_path: Path) -> None:
    assert "BUNDLE or the --store" in airlock("recalibrate", "--table", table_path).err
    assert "nothing to calibrate on" in airlock("recalibrate", "--store", tmp_path).err
    both = airlock("recalibrate", "--store", tmp_path, "--table", table_path, "--since", "7d")
    assert (both.code, "leave out" in both.err) == (2, True)
    no_ledger = airlock("recalibrate", "--store", tmp_path, "--since", "7d")
    assert no_ledger.code == 1
    assert no_ledger.err.startswith("airlock: There is no ledger to read: name it with --ledger")
    missing = airlock("recalibrate", "--store", tmp_path, "--since", "7d", "--ledger", tmp_path / "none.sqlite")
    assert missing.code == 1
    assert missing.err.count("\n") == 1


def test_recalibrate_reads_the_ledger(airlock: Airlock, bundle: Bundle, make: Any, tmp_path: Path) -> None:
    state, table = tmp_path / "state", make(400, seed=1)
    state.mkdir()
    fill_ledger(state / "ledger.sqlite", bundle, table)
    document = airlock("recalibrate", bundle.path, "--since", "7d", "--ledger", state, "--json").json
    assert document["active"]
    assert document["policy"]["bundle"] == bundle.hash
    assert document["policy"]["data"]["n"] == len(table)
    assert document["policy"]["data"]["n_ood"] == table.n_ood
    assert document["policy"]["data"]["sources"] == [f"ledger {state} since 7d"]


def fill_ledger(path: Path, bundle: Bundle, table: ScoreTable) -> None:
    """Audited and labelled decisions with the scores of the table."""
    from service.gate import DecisionBatch
    from service.ledger import Database
    from service.ledger.feedback import Target, give_label
    from service.ledger.writing import append, rows
    from service.monitoring.audit import Audit
    from service.monitoring.tally import Group

    policy = Policy(tau_id=0.0, tau_ood=0.0, number=1)
    accept, reason = policy.decide(table.s_id, table.s_ood)
    ids = [f"item-{i}" for i in range(len(table))]
    prediction = np.zeros(len(table), dtype=np.int64)
    batch = DecisionBatch(
        "r", ids, time.time(), prediction, table.s_id, table.s_ood, accept, reason, policy, 0.001, len(table)
    )
    database = Database(path)
    try:
        everything = Audit("ab" * 16, 1.0, 1.0)
        append(database, rows(Group.of([batch]), database.source(bundle.hash, 1), everything))
        for name, of_id, right in zip(ids, table.is_id, table.correct, strict=True):
            give_label(database, Target(id=name), label=(0 if right else 1) if of_id else None)
    finally:
        database.close()


def test_policies_shows_switches_and_rolls_back(airlock: Airlock, table_path: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    assert "no policies" in airlock("policies", store).out
    for method in ("dsf1", "certified"):
        airlock("calibrate", "--table", table_path, "--store", store, "--method", method)
    listed = airlock("policies", store).out.splitlines()
    assert len(listed) == 2
    assert listed[0].startswith("* 0001")
    assert "certified" in listed[1]
    assert airlock("policies", store, "activate", 2).out == "policy 0002 (certified, validated) is active\n"
    assert airlock("policies", store, "show", 2).out.startswith("policy 0002 · certified · validated · active")
    assert airlock("policies", store, "rollback", "--note", "too strict").out.startswith("policy 0001")
    history = airlock("policies", store, "history").out
    assert [line.split("  ")[1].split()[0] for line in history.splitlines()] == ["activate", "activate", "rollback"]
    assert "too strict" in history
    assert airlock("policies", store, "rollback").code == 1
    documents = airlock("policies", store, "--json").json
    assert documents["active"] == 1
    assert len(documents["policies"]) == 2


def test_policies_diff_counts_decisions(airlock: Airlock, table_path: Path, table: ScoreTable, tmp_path: Path) -> None:
    store = PolicyStore(tmp_path)
    for tau in (1.0, 2.0):
        store.add(Policy(tau_id=tau, tau_ood=0.0))
    between = int(((table.s_id >= 1.0) & (table.s_id < 2.0) & (table.s_ood >= 0.0)).sum())
    text = airlock("policies", tmp_path, "diff", 1, 2, "--table", table_path).out
    assert f"{between:,} of 3,000 decisions change: 0 new accepts, {between:,} new rejects" in text
    assert "tau_id  1 → 2" in text
    document = airlock("policies", tmp_path, "diff", 1, 2, "--table", table_path, "--json").json
    assert document["decisions"]["changed"] == between
    assert document["fields"] == {"tau_id": {"old": 1.0, "new": 2.0}}
    assert "--table" in airlock("policies", tmp_path, "diff", 1, 2).out


def test_policies_of_another_bundle_are_refused(airlock: Airlock, bundle: Bundle, tmp_path: Path) -> None:
    PolicyStore(tmp_path / "store").add(Policy(tau_id=0, tau_ood=0, bundle="f" * 64))
    found = airlock("policies", bundle.path, "activate", 1, "--store", tmp_path / "store")
    assert found.code == 1
    assert "made for bundle ffffffffffff" in found.err


@pytest.mark.parametrize("arguments", [["activate"], ["activate", "1", "2"], ["diff", "1"], ["rollback", "1"], ["fly"]])
def test_policies_says_what_an_action_takes(airlock: Airlock, tmp_path: Path, arguments: list[str]) -> None:
    assert airlock("policies", tmp_path, *arguments).code == 2


@pytest.mark.parametrize("name", ["calibrate", "recalibrate", "policies"])
def test_help_has_an_example(airlock: Airlock, name: str) -> None:
    assert "Example:" in airlock(name, "--help").out
