"""What a policy does to a table, as the report's tables show it: per group, per kind of sample, per class."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.binomial import clopper_pearson, lower_bound, upper_bound
from calibration.judge import predicted_classes
from calibration.metrics import Counts, Undefined, counts_of
from calibration.policy import REASONS, Policy
from calibration.report.document import ClassRow, Decisions, KindRow, Share
from calibration.splits import has_weights
from calibration.table import ScoreTable

LEVEL = 0.95
UNNAMED = "(none)"
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """A table with the verdict on each of its rows; `reason` is a position in `calibration.policy.REASONS`."""

    table: ScoreTable
    accept: Mask
    reason: NDArray[np.uint8]

    @classmethod
    def by(cls, policy: Policy, table: ScoreTable) -> "Judged":
        """Let the policy decide."""
        labels = predicted_classes(table) if policy.per_class else None
        return cls(table, *policy.decide(table.s_id, table.s_ood, None, labels))

    def counts(self, rows: Mask) -> Counts:
        """Outcomes of some rows."""
        return counts_of(self._part(rows), self.accept[rows])

    def share(self, part: Mask, whole: Mask) -> Share:
        """A share of weight with its exact interval; rows of unequal weight have none."""
        weight = self.table.weights
        total = float(weight[whole].sum())
        if total <= 0.0:
            return Share(value=None, low=None, high=None)
        value = float(weight[part].sum()) / total
        if has_weights(self.table):
            return Share(value=value, low=None, high=None)
        low, high = clopper_pearson(int(np.count_nonzero(part)), int(np.count_nonzero(whole)), LEVEL)
        return Share(value=value, low=low, high=high)

    def _part(self, rows: Mask) -> ScoreTable:
        table = self.table
        weight = None if table.weight is None else table.weight[rows]
        return ScoreTable(table.s_id[rows], table.s_ood[rows], table.is_id[rows], table.correct[rows], weight=weight)


def kinds(table: ScoreTable) -> dict[str, Mask]:
    """The three kinds of rows."""
    return {
        "correct": table.correct,
        "misclassified": table.is_id & ~table.correct,
        "out-of-distribution": ~table.is_id,
    }


def kinds_by_group(table: ScoreTable) -> dict[str, Mask]:
    """The same, with OOD rows told apart by group where there are several groups."""
    found = {name: mask for name, mask in kinds(table).items() if mask.any()}
    names = [] if table.group is None else np.unique(table.group[~table.is_id]).tolist()
    if table.group is None or len(names) < 2:
        return found
    ood = found.pop("out-of-distribution")
    return found | {f"OOD: {name or UNNAMED}": ood & (table.group == name) for name in names}


def decisions(judged: Judged) -> dict[str, Decisions]:
    """Counts for all rows, for ID and OOD, and for every group that is none of these."""
    return {name: _decisions(judged, rows) for name, rows in _parts(judged.table).items()}


def by_kind(judged: Judged) -> list[KindRow]:
    """Which door stops what."""
    weight = judged.table.weights
    found = []
    for name, rows in kinds_by_group(judged.table).items():
        sums = np.bincount(judged.reason[rows], weight[rows], len(REASONS)).tolist()
        by_reason = {reason or "accepted": amount for reason, amount in zip(REASONS, sums, strict=True)}
        found.append(KindRow(name=name, rows=int(np.count_nonzero(rows)), **by_reason))
    return found


def per_class(judged: Judged, names: Sequence[str] | None = None) -> list[ClassRow]:
    """Acceptance and risk by predicted class: what a caller who sees this answer should expect."""
    table, accept = judged.table, judged.accept
    if table.prediction is None or not len(table):
        return []
    classes, of_row = np.unique(table.prediction, return_inverse=True)

    def count(mask: Mask) -> NDArray[np.int64]:
        return np.bincount(of_row[mask], minlength=len(classes))

    def weigh(mask: Mask) -> NDArray[np.float64]:
        return np.bincount(of_row[mask], table.weights[mask], len(classes)).astype(np.float64)

    everything, wrong = np.ones(len(table), bool), accept & ~table.correct
    weighted = has_weights(table)
    acceptance = _shares(weigh(accept), weigh(everything), (count(accept), count(everything)), weighted)
    risk = _shares(weigh(wrong), weigh(accept), (count(wrong), count(accept)), weighted)
    rows, accepted = count(everything), count(accept)
    errors, ood = count(wrong & table.is_id), count(wrong & ~table.is_id)
    return [
        ClassRow(
            name=class_name(value, names),
            rows=int(rows[i]),
            accepted=int(accepted[i]),
            acceptance=acceptance[i],
            risk=risk[i],
            wrong_id=int(errors[i]),
            ood=int(ood[i]),
        )
        for i, value in enumerate(classes.tolist())
    ]  # fmt: skip


def class_name(value: int | str, names: Sequence[str] | None) -> str:
    """A class by its name where the names are known."""
    if isinstance(value, int) and names is not None and 0 <= value < len(names):
        return names[value]
    return str(value)


def _shares(
    part: NDArray[np.float64], whole: NDArray[np.float64], counts: tuple[NDArray, NDArray], weighted: bool
) -> list[Share]:
    """Many shares at once."""
    tail = (1.0 - LEVEL) / 2.0
    low, high = lower_bound(*counts, tail).tolist(), upper_bound(*counts, tail).tolist()
    return [
        Share(
            value=part[i] / whole[i] if whole[i] > 0.0 else None,
            low=None if weighted or whole[i] <= 0.0 else low[i],
            high=None if weighted or whole[i] <= 0.0 else high[i],
        )
        for i in range(len(part))
    ]


def _parts(table: ScoreTable) -> dict[str, Mask]:
    parts = {"all": np.ones(len(table), bool)}
    if table.n_id and table.n_ood:
        parts |= {"in-distribution": table.is_id, "out-of-distribution": ~table.is_id}
    for name in [] if table.group is None else np.unique(table.group).tolist():
        rows = table.group == name
        if name and not any(np.array_equal(rows, known) for known in list(parts.values())[:3]):
            parts[f"group: {name}"] = rows
    return parts


def _decisions(judged: Judged, rows: Mask) -> Decisions:
    table, counts = judged.table, judged.counts(rows)
    accept = judged.accept & rows
    return Decisions(
        rows=int(np.count_nonzero(rows)),
        true_accept=counts.true_accepts,
        false_accept_id=counts.false_accepts_id,
        false_accept_ood=counts.false_accepts_ood,
        false_reject=counts.false_rejects,
        true_reject=counts.n_ood - counts.false_accepts_ood,
        accepted=counts.accepted,
        acceptance=judged.share(accept, rows),
        risk=judged.share(accept & ~table.correct, accept),
        precision=counts.precision if counts.accepted > 0 else None,
        recall=_defined(lambda: counts.recall),
        f1=_defined(lambda: counts.f1),
        coverage=judged.share(accept & table.is_id, rows & table.is_id),
        ood_acceptance=judged.share(accept & ~table.is_id, rows & ~table.is_id),
    )


def _defined(value: Callable[[], float]) -> float | None:
    try:
        return value()
    except Undefined:
        return None
