"""The best F1 with both doors or with one left open, exact, from `calibration.metrics`."""

import math
import sys
from dataclasses import dataclass

from calibration.evidence import DoorName
from calibration.table import ScoreTable
from calibration.thresholds import OPEN


@dataclass(frozen=True)
class Best:
    """Thresholds with the largest F1 on some table."""

    tau_id: float
    tau_ood: float
    f1: float


def best_f1(table: ScoreTable, door: DoorName) -> Best:
    """The exact optimum with both doors, or with the other one left open."""
    from calibration.metrics import f1

    if door == "double":
        return best_pair(table)
    single = f1(table, door)
    tau = _door(single.tau)
    return Best(tau if door == "s_id" else OPEN, tau if door == "s_ood" else OPEN, float(single.value))


def best_pair(table: ScoreTable) -> Best:
    """The exact DS-F1 optimum."""
    from calibration.metrics import ds_f1

    found = ds_f1(table)
    return Best(_door(found.tau_id), _door(found.tau_ood), float(found.value))


def _door(tau: float) -> float:
    """A door that should let nothing through (no correct row at all) is the largest finite threshold."""
    return sys.float_info.max if tau == math.inf else float(tau)
