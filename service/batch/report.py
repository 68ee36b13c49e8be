"""The end of a run in words, and the metrics of what it wrote."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from service.batch import formats
from service.batch.errors import JobError
from service.batch.job import Outcome, summary_path
from service.batch.options import Job
from service.batch.parts import SUMMARY
from service.batch.progress import say_rate, say_seconds

_TABLE = ("s_id", "s_ood", "is_id", "correct", "group", "weight", "id", "prediction", "label")


def lines(job: Job, outcome: Outcome) -> Iterator[str]:
    """What was done, what was decided, where it is."""
    counts, run = outcome.summary["counts"], outcome.summary["run"]
    rows = counts.get("rows", 0)
    if outcome.already:
        yield f"nothing to do: all {rows:,} rows were scored before"
    else:
        resumed = f", {run['resumed_rows']:,} before" if run["resumed_rows"] else ""
        rate = say_rate(run["rows_per_second"] or 0)
        yield f"scored {run['rows']:,} rows in {say_seconds(run['seconds'])} ({rate}){resumed}"
    if not rows:
        return
    if outcome.summary["policy"] is not None:
        yield _verdicts(counts, outcome.summary["policy"]["name"])
    if "labels" in counts:
        yield _truth(counts["labels"])
    if counts["errors"]:
        first = counts["error_samples"][0]
        yield f"errors   {counts['errors']:,} items, first {first['id']}: {first['error']}"
    if counts.get("unknown_classes"):
        named = ", ".join(f"{name} ({n:,})" for name, n in list(counts["unknown_classes"].items())[:8])
        yield f"labels   that are no class of the model, taken as OOD: {named}"
    where = job.out / SUMMARY if job.out.is_dir() else summary_path(job.out)
    if outcome.complete:
        yield f"wrote    {job.out}, summary in {where}"


def evaluate_output(outcome: Outcome) -> dict[str, Any]:
    """Every metric of the rows that have a label."""
    from calibration.metrics import evaluate
    from calibration.table import ScoreTable

    table = formats.read_columns(outcome.files, outcome.kind, _TABLE)
    if "is_id" not in table.column_names:
        raise JobError("The output has no labels, so it cannot be evaluated; name them with --label, or give --ood.")
    labelled = table.filter(table["is_id"].is_valid())
    if len(labelled) == 0:
        raise JobError("No row of the output has a label, so it cannot be evaluated.")
    columns = {name: _values(labelled[name]) for name in labelled.column_names}
    return evaluate(ScoreTable.from_columns(**columns))


def _values(column: Any) -> Any:
    if column.null_count == 0 or str(column.type) == "double":
        return column.to_numpy()
    return np.array(column.to_pylist(), dtype=object)


def _verdicts(counts: dict[str, Any], policy: str) -> str:
    share = 100 * counts["accepted"] / counts["rows"]
    reasons = ", ".join(f"{name} {n:,}" for name, n in counts["reasons"].items() if n)
    return (
        f"accepted {counts['accepted']:,} ({share:.1f} %), rejected {counts['rejected']:,}"
        + (f": {reasons}" if reasons else "")
        + f" (policy {policy})"
    )


def _truth(labels: dict[str, int]) -> str:
    accuracy = f", {100 * labels['correct'] / labels['id']:.2f} % of ID correct" if labels["id"] else ""
    missing = f", {labels['none']:,} without label" if labels["none"] else ""
    return (
        f"labels   {labels['id']:,} ID, {labels['ood']:,} OOD{missing}{accuracy}; accepted were "
        f"{labels['accepted_correct']:,} right, {labels['accepted_wrong']:,} wrong, {labels['accepted_ood']:,} OOD"
    )
