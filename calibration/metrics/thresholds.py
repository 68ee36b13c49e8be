"""All pairs of thresholds that can matter, as steps of `tau_ood` and leaves of `tau_id`."""

from dataclasses import dataclass

import numpy as np

from calibration.metrics.ordering import ranking
from calibration.table import ScoreTable


@dataclass(frozen=True)
class Steps:
    """Rows in the order in which loosening `tau_ood` admits them, told apart only as far as thresholds can.

    Only the scores of `marked` rows are thresholds worth trying: tightening a threshold to the next accepted marked
    row drops none of them. A row counts from its `leaf` (a value of tau_id) and its step (a value of tau_ood) on;
    rows below every marked row are left out.
    """

    rows: np.ndarray
    """Row numbers of the table."""
    leaf: np.ndarray
    """For each row, the position in `tau_id` of the highest threshold that admits it."""
    ends: np.ndarray
    """For each value of `tau_ood`, the position of the last row that it admits."""
    tau_id: np.ndarray
    tau_ood: np.ndarray


def steps(table: ScoreTable, marked: np.ndarray) -> Steps:
    """The pairs of thresholds that lie on marked rows; rows without weight or finite scores take no part."""
    live = table.weights > 0.0
    marked = marked & live & table.finite
    by_id, by_ood = ranking(table, "s_id"), ranking(table, "s_ood")
    holds_id, leaf_in_order = by_id.landmarks(marked)
    holds_ood, step = by_ood.landmarks(marked)
    leaf = np.empty(len(table), dtype=np.int64)
    leaf[by_id.rows] = leaf_in_order
    leaf_by_ood = leaf[by_ood.rows]
    kept = live[by_ood.rows] & (step < np.count_nonzero(holds_ood)) & (leaf_by_ood < np.count_nonzero(holds_id))
    step = step[kept]
    last = np.ones(len(step), dtype=bool)
    np.not_equal(step[1:], step[:-1], out=last[:-1])
    return Steps(
        rows=by_ood.rows[kept],
        leaf=leaf_by_ood[kept],
        ends=np.flatnonzero(last),
        tau_id=table.s_id[by_id.rows[by_id.ends[holds_id]]],
        tau_ood=table.s_ood[by_ood.rows[by_ood.ends[holds_ood]]],
    )
