"""On the embedded data: thresholds chosen on its calibration samples, judged on its test samples."""

from pathlib import Path

import pytest

import models.fashion
from calibration.metrics import ds_f1, f1
from calibration.resample import accepted_by, rates
from calibration.table import ScoreTable
from calibration.thresholds import OPEN
from models.bundle import Bundle
from service.commands.calibration_inputs import load_data

HOME = Path(models.fashion.__file__).parent


@pytest.fixture(scope="module")
def tables() -> dict[str, ScoreTable]:
    bundle = Bundle.open(HOME / "bundle")
    return {name: scored(bundle, HOME / "samples" / name) for name in ("calibration", "test")}


def scored(bundle: Bundle, folder: Path) -> ScoreTable:
    ood = [f"{group}={folder / group}.npz" for group in ("near", "far")]
    return load_data(bundle, [str(folder / "id.npz")], ood, [], quiet=True).table


def held_out_f1(table: ScoreTable, tau_id: float, tau_ood: float) -> float:
    return float(rates(table, accepted_by(table, tau_id, tau_ood)).f1[0])


def test_two_doors_beat_the_best_single_door(tables: dict[str, ScoreTable]) -> None:
    chosen_on, judged_on = tables["calibration"], tables["test"]
    pair = ds_f1(chosen_on)
    double = held_out_f1(judged_on, pair.tau_id, pair.tau_ood)
    singles = (
        held_out_f1(judged_on, f1(chosen_on, "s_id").tau, OPEN),
        held_out_f1(judged_on, OPEN, f1(chosen_on, "s_ood").tau),
    )
    assert double > max(singles) + 0.005


def test_the_embedded_policy_is_validated_and_belongs_to_its_bundle() -> None:
    from calibration.store import PolicyStore

    bundle = Bundle.open(HOME / "bundle")
    active = PolicyStore(bundle.policies_dir, bundle.hash).active()
    assert active is not None
    assert active.status == "validated"
    assert active.bundle == bundle.hash
