"""`airlock ledger` as a user runs it, and a new policy from labelled traffic."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from support.local import Local
from support.traffic import draw_traffic, instances

from calibration.store import PolicyStore
from calibration.table import ScoreTable
from models.bundle import Bundle
from service.cli import airlock
from service.ledger import LedgerError


def _airlock(*arguments: "str | Path") -> Result:
    result = CliRunner().invoke(airlock, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def state(make_local: Callable[..., Local], tmp_path: Path) -> Path:
    """A state directory with 400 decisions, all drawn for audit, and labels for the first 200."""
    local = make_local(audit_share=1.0, audit_share_rejected=1.0)
    traffic = draw_traffic(np.random.default_rng(0), 400)
    local.classify(instances(traffic), ids=[f"i{k}" for k in range(400)])
    for k in range(200):
        truth: dict[str, Any] = (
            {"is_ood": True} if not traffic["is_id"][k] else {"label": int(not traffic["correct"][k])}
        )
        assert local.admin("POST", "/v1/feedback", json={"id": f"i{k}", **truth}).status_code == 200
    local.close()
    return tmp_path / "state"


def test_stats_say_what_is_there(state: Path) -> None:
    shown = _airlock("ledger", "stats", state)
    assert shown.exit_code == 0
    assert "400 decisions" in shown.output
    assert "labelled 200" in shown.output
    document = json.loads(_airlock("ledger", "stats", state, "--json").output)
    assert document["policies"][0]["audit"] == 400
    assert document["policies"][0]["audit_labels"]["labelled"] > 100


def test_export_writes_every_decision_in_three_formats(state: Path, tmp_path: Path) -> None:
    for ending in ("jsonl", "csv", "parquet"):
        done = _airlock("ledger", "export", state / "ledger.sqlite", "--out", tmp_path / f"d.{ending}", "--since", "1h")
        assert done.output.startswith("400 decisions written")
    lines = [json.loads(line) for line in (tmp_path / "d.jsonl").read_text().splitlines()]
    with (tmp_path / "d.csv").open() as file:
        table = list(csv.DictReader(file))
    columns = pq.read_table(tmp_path / "d.parquet").to_pydict()
    ids = [f"i{k}" for k in range(400)]
    assert [line["id"] for line in lines] == [row["id"] for row in table] == columns["id"] == ids
    assert [line["s_id"] for line in lines] == [float(row["s_id"]) for row in table] == columns["s_id"]
    assert sum(line["is_ood"] is not None for line in lines) == 200
    assert not list(tmp_path.glob(".d.*"))


def test_export_of_labels_is_a_score_table(state: Path, tmp_path: Path) -> None:
    assert _airlock("ledger", "export", state, "--labelled", "--out", tmp_path / "t.parquet").exit_code == 0
    table = ScoreTable.read(tmp_path / "t.parquet")
    traffic = draw_traffic(np.random.default_rng(0), 400)
    assert table.is_id.tolist() == traffic["is_id"][:200].tolist()
    assert table.correct.tolist() == traffic["correct"][:200].tolist()
    assert table.s_id == pytest.approx(traffic["s_id"][:200], abs=1e-6)


def test_prune_deletes_the_unlabelled_first(state: Path) -> None:
    assert _airlock("ledger", "prune", state, "--older-than", "0s").output == "200 decisions deleted\n"
    assert "200 decisions" in _airlock("ledger", "stats", state).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("stats", "nowhere.sqlite"), "there is no ledger at"),
        (("export", "{state}", "--out", "x.txt"), ".jsonl, .csv or .parquet"),
        (("export", "{state}", "--out", "x.csv", "--since", "ages"), "'ages' arrived"),
        (("export", "{state}", "--out", "/no/such/dir/x.csv"), "cannot be written"),
        (("prune", "{state}", "--older-than", "long"), "'long' arrived"),
        (("stats", "{state}/monitor/layout"), "cannot be opened"),
    ],
)
def test_a_refusal_is_one_sentence(state: Path, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(LedgerError, match=said) as refusal:
        _airlock("ledger", *(argument.format(state=state) for argument in arguments))
    assert "\n" not in str(refusal.value)


def test_bad_usage_is_exit_code_2(state: Path) -> None:
    assert _airlock("ledger", "export", state).exit_code == 2
    assert _airlock("ledger", "export", state, "--out", "x.csv", "--bundle", "b").exit_code == 2


def test_recalibrate_makes_a_policy_from_the_labels(state: Path, bundle: Bundle) -> None:
    done = _airlock("recalibrate", bundle.path, "--since", "7d", "--ledger", state, "--json")
    assert done.exit_code == 0, done.output
    policies = PolicyStore(bundle.policies_dir, bundle.hash).list()
    assert len(policies) == 2
    data = policies[-1].data
    assert data is not None
    assert data.n == 200
    assert policies[-1].bundle == bundle.hash
