"""The one path from a batch to rows of the output, whatever engine runs it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calibration.policy import REASONS, Policy
from models.data import OOD, UNLABELLED, Batch, Fault, Items, Rows
from models.data.items import fault_of
from models.errors import ModelsError
from models.runtime import Scored, Scorer

_REASONS = (*REASONS, "unreadable")
_NOT_FINITE, _UNREADABLE = _REASONS.index("not_finite"), _REASONS.index("unreadable")
_UNDECIDED = len(_REASONS)
_SCORES = Fault("not_finite", "The model gave a score or logit that is not finite.")
OWN_COLUMNS = (
    "id", "prediction", "class", "s_id", "s_ood", "decision", "reason", "policy", "error",
    "label", "label_class", "correct", "is_id", "group", "probabilities",
)  # fmt: skip
_SAMPLES = 5


@dataclass(frozen=True)
class Scores:
    """What the model said of a batch; the inputs themselves are gone."""

    rows: Rows
    faults: dict[int, Fault]
    label: NDArray[np.int64]
    s_id: NDArray[np.float64]
    s_ood: NDArray[np.float64]
    finite: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.label)


def infer(scorer: Scorer, batch: Batch) -> Scores:
    """Score the readable items of a batch; the others keep label −1 and scores NaN."""
    n = len(batch)
    faults = dict(batch.faults)
    answers = [answer for items in batch.items for answer in _answers(scorer, items, faults)]
    if len(answers) == 1 and len(answers[0][1]) == n:
        scored = answers[0][1]
        return Scores(batch.rows, faults, scored.label, scored.s_id, scored.s_ood, scored.finite)
    result = Scores(batch.rows, faults, np.full(n, -1), np.full(n, np.nan), np.full(n, np.nan), np.zeros(n, np.bool_))
    for positions, scored in answers:
        for name in ("label", "s_id", "s_ood", "finite"):
            getattr(result, name)[positions] = getattr(scored, name)
    return result


def _answers(scorer: Scorer, items: Items, faults: dict[int, Fault]) -> Iterator[tuple[NDArray[np.int64], Scored]]:
    """Scores by position; items on which the graph itself fails (a token beyond the vocabulary) become faults.

    They are found by halving. A scorer that no longer answers anything is no fault of an item and ends the job.
    """
    try:
        scored = scorer.score(items.x)
    except ModelsError as refusal:
        n = len(items.x)
        if n == 1 and not scorer.still_runs():
            raise
        if n == 1:
            faults[int(items.positions[0])] = fault_of(refusal)
        else:
            for half in (slice(None, n // 2), slice(n // 2, None)):
                yield from _answers(scorer, Items(items.positions[half], items.x[half]), faults)
    else:
        yield items.positions, scored


@dataclass(frozen=True)
class Judge:
    """Turns scores into the rows of the output table."""

    classes: tuple[str, ...]
    policy: Policy | None
    group: str | None = None  # one group for every row
    all_ood: bool = False  # every row is out of distribution, whatever its label

    def table(self, parts: Sequence[Scores]) -> tuple[pa.Table, dict[str, Any]]:
        """The rows of consecutive batches, and their counts."""
        joined = _join(parts)
        codes = self._codes(joined)
        errors = _errors(joined, codes)
        named = self._predictions(joined) | self._verdicts(codes, errors) | self._truth(joined)
        counts = self._counts(joined, codes, errors)
        for name, column in zip(joined.rows.carried.column_names, joined.rows.carried.columns, strict=True):
            named[_carried_name(name, joined.rows.carried.column_names)] = column
        return pa.table(named), counts

    def _codes(self, scores: Scores) -> NDArray[np.uint8]:
        if self.policy is None:
            codes = np.full(len(scores), _UNDECIDED, np.uint8)
            codes[~(scores.finite & np.isfinite(scores.s_id) & np.isfinite(scores.s_ood))] = _NOT_FINITE
        else:
            codes = self.policy.decide(scores.s_id, scores.s_ood, scores.finite, scores.label).reason.copy()
        for row, fault in scores.faults.items():
            codes[row] = _UNREADABLE if fault.reason == "unreadable" else _NOT_FINITE
        return codes

    def _predictions(self, scores: Scores) -> dict[str, Any]:
        unscored = np.zeros(len(scores), bool)
        unscored[list(scores.faults)] = True
        label = pa.array(scores.label, mask=unscored)
        return {
            "id": scores.rows.ids,
            "prediction": label,
            "class": pa.array(self.classes, pa.string()).take(label),
            # no threshold that is ever chosen from this table may accept what the graph's own guard refuses
            "s_id": pa.array(np.where(scores.finite, scores.s_id, np.nan), mask=unscored),
            "s_ood": pa.array(np.where(scores.finite, scores.s_ood, np.nan), mask=unscored),
        }

    def _verdicts(self, codes: NDArray[np.uint8], errors: dict[int, Fault]) -> dict[str, Any]:
        undecided = codes == _UNDECIDED
        decisions = pa.array(["accept", "reject"]).take(pa.array((codes != 0).astype(np.int8), mask=undecided))
        reasons = pa.array([*_REASONS, None], pa.string()).take(pa.array(codes))
        name = None if self.policy is None else self.policy.name
        texts = pa.nulls(len(codes), pa.string())
        if errors:
            rows = np.zeros(len(codes), np.int32)
            rows[list(errors)] = np.arange(1, len(errors) + 1)
            texts = pa.array([None, *(fault.message for fault in errors.values())], pa.string()).take(pa.array(rows))
        return {
            "decision": decisions,
            "reason": reasons,
            "policy": pa.repeat(pa.scalar(name, pa.string()), len(codes)),
            "error": texts,
        }

    def _truth(self, scores: Scores) -> dict[str, Any]:
        y = self._labels(scores)
        columns: dict[str, Any] = {}
        if y is not None:
            unknown = y == UNLABELLED
            columns["label"] = pa.array(y, mask=unknown)
            if scores.rows.names is not None:
                columns["label_class"] = scores.rows.names
            columns["correct"] = pa.array((y >= 0) & (y == scores.label), mask=unknown)
            columns["is_id"] = pa.array(y >= 0, mask=unknown)
        if self.group is not None:
            columns["group"] = pa.repeat(pa.scalar(self.group, pa.string()), len(scores))
        elif scores.rows.group is not None:
            columns["group"] = scores.rows.group
        return columns

    def _labels(self, scores: Scores) -> NDArray[np.int64] | None:
        return np.full(len(scores), OOD, np.int64) if self.all_ood else scores.rows.y

    def _counts(self, scores: Scores, codes: NDArray[np.uint8], errors: dict[int, Fault]) -> dict[str, Any]:
        tally = np.bincount(codes, minlength=_UNDECIDED + 1).tolist()
        counts: dict[str, Any] = {
            "rows": len(codes),
            "accepted": tally[0],
            "rejected": sum(tally[1:_UNDECIDED]),
            "undecided": tally[_UNDECIDED],
            "reasons": {str(name): tally[i] for i, name in enumerate(_REASONS) if i},
            "errors": len(errors),
            "error_samples": _samples(scores, errors),
        }
        y = self._labels(scores)
        if y is not None:
            right = (y >= 0) & (y == scores.label)
            counts["labels"] = {
                "id": int((y >= 0).sum()),
                "ood": int((y == OOD).sum()),
                "none": int((y == UNLABELLED).sum()),
                "correct": int(right.sum()),
                "accepted_correct": int((right & (codes == 0)).sum()),
                "accepted_wrong": int(((y >= 0) & ~right & (codes == 0)).sum()),
                "accepted_ood": int(((y == OOD) & (codes == 0)).sum()),
            }
            if scores.rows.names is not None and not self.all_ood:
                counts["unknown_classes"] = _strangers(scores.rows.names, y)
        return counts


def _carried_name(name: str, carried: Sequence[str]) -> str:
    """A name beside our own columns and the other carried ones."""
    if name not in OWN_COLUMNS:
        return name
    name = f"input_{name}"
    while name in carried:
        name = f"input_{name}"
    return name


def _join(parts: Sequence[Scores]) -> Scores:
    if len(parts) == 1:
        return parts[0]
    first = parts[0].rows
    faults: dict[int, Fault] = {}
    at = 0
    for part in parts:
        faults.update((at + row, fault) for row, fault in part.faults.items())
        at += len(part)
    rows = Rows(
        start=first.start,
        ids=pa.concat_arrays([part.rows.ids for part in parts]),
        y=None if first.y is None else np.concatenate([part.rows.y for part in parts if part.rows.y is not None]),
        names=None if first.names is None else pa.concat_arrays([part.rows.names for part in parts]),
        group=None if first.group is None else pa.concat_arrays([part.rows.group for part in parts]),
        carried=pa.concat_tables([part.rows.carried for part in parts]).combine_chunks(),
    )
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("label", "s_id", "s_ood", "finite"))
    return Scores(rows, faults, *columns)


def _errors(scores: Scores, codes: NDArray[np.uint8]) -> dict[int, Fault]:
    """The faults of the input, and of the model where its own scores are not finite."""
    silent = {int(row): _SCORES for row in np.flatnonzero(codes == _NOT_FINITE)}
    return dict(sorted((silent | scores.faults).items()))


def _samples(scores: Scores, errors: dict[int, Fault]) -> list[dict[str, str]]:
    rows = list(errors)[:_SAMPLES]
    return [
        {"id": scores.rows.ids[row].as_py(), "reason": errors[row].reason, "error": errors[row].message} for row in rows
    ]


def _strangers(names: pa.Array, y: NDArray[np.int64]) -> dict[str, int]:
    """Label names that are no class of the model, with their counts: a misspelt class shows here."""
    values = names.filter(pa.array(y == OOD)).value_counts()
    found = {entry["values"].as_py(): entry["counts"].as_py() for entry in values}
    return most_common(found)


def most_common(counts: dict[str, int]) -> dict[str, int]:
    """The largest counts first; a label column full of names must not fill the summary."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:50])


def add_counts(total: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Counts of two runs of rows together; samples keep the first few."""
    merged = dict(total)
    for name, value in more.items():
        old = merged.get(name)
        if isinstance(value, dict):
            merged[name] = add_counts(old or {}, value)
        elif isinstance(value, list):
            merged[name] = [*(old or []), *value][: 4 * _SAMPLES]
        else:
            merged[name] = (old or 0) + value
    return merged
