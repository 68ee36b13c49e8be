"""`airlock evaluate`: every metric of a score table."""

from pathlib import Path
from typing import Any

import click

from service.commands.common import emit_json, progress


@click.command()
@click.argument("table", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document with every metric.")
@click.option("--prevalence", type=float, metavar="P", help="Weigh the rows so that OOD has the share P (0 <= P < 1).")
@click.option(
    "--bootstrap", type=click.IntRange(min=0), default=0, metavar="N", help="Intervals from N stratified resamples."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the resamples.")
def command(table: Path, as_json: bool, prevalence: float | None, bootstrap: int, seed: int) -> None:
    """Every metric of a score TABLE (CSV, Parquet, or a folder of parts).

    The table has one row a sample with the columns s_id and s_ood (scores, higher is better), is_id, and correct (or
    prediction and label); group, weight, id and p_0, p_1, ... are optional. Metrics are unscaled.

    \b
    Examples:
      airlock evaluate scores.parquet
      airlock evaluate scores.csv --prevalence 0.1 --bootstrap 1000 --json
    """
    from calibration.metrics import evaluate, group_tables
    from calibration.table import ScoreTable

    rows = ScoreTable.read(table)
    evaluations = 1 + len(group_tables(rows))
    with progress("resampling", bootstrap * evaluations, quiet=not bootstrap) as advance:
        document = evaluate(rows, prevalence=prevalence, bootstrap=bootstrap, seed=seed, advance=advance)
    if as_json:
        emit_json(document)
    else:
        click.echo(metrics_text(table.name, document))


def metrics_text(name: str, document: dict[str, Any]) -> str:
    """The document for a reader: what matters most first, one line a metric."""
    found = document["ds_f1"]
    share = f" at an OOD prevalence of {document['prevalence']:g}" if document["prevalence"] is not None else ""
    lines = [
        f"{name}: {document['n_id']:,} ID and {document['n_ood']:,} OOD rows{share}",
        "",
        f"accuracy  {_cell(document, 'accuracy')}",
        f"DS-F1     {_cell(document, 'ds_f1', 'value')}  at s_id >= {_number(found['tau_id'])} and"
        f" s_ood >= {_number(found['tau_ood'])} (precision {_number(found['precision'])},"
        f" recall {_number(found['recall'])})",
        "DS-AURC   " + "  ".join(f"{_cell(document, 'ds_aurc', key)} {key}" for key in document["ds_aurc"]),
        "",
        *_table(document, ("", "s_id", "s_ood", "s_id on ID"), _SCORE_LINES),
        "",
        *_table(document, ("", "s_id on ID"), _FAILURE_LINES),
        "",
        *_table(document, ("", "s_ood"), _OOD_LINES),
    ]
    if document["probabilities"]["ece"] is not None:
        lines += ["", *_table(document, ("", "probabilities"), _PROBABILITY_LINES)]
    if document["groups"]:
        lines += ["", *_groups(document)]
    lines += ["", *(f"note: {note}" for note in document["notes"])] if document["notes"] else []
    reasons = sorted({reason for path, reason in document["undefined"].items() if not path.startswith("prob")})
    lines += ["", *(f"-: {reason}" for reason in reasons)] if reasons else []
    return "\n".join(line.rstrip() for line in lines)


_Line = tuple[str, tuple[tuple[str, ...] | None, ...]]

_SCORE_LINES: tuple[_Line, ...] = (
    ("F1", (("f1", "s_id", "value"), ("f1", "s_ood", "value"), None)),
    *(
        (f"AURC {key}", tuple(("aurc", name, key) for name in ("s_id", "s_ood", "id_only")))
        for key in ("curve", "plugin", "plugin_log", "sele")
    ),
    ("e-AURC", tuple(("eaurc", name, "curve") for name in ("s_id", "s_ood", "id_only"))),
    ("AUGRC", (("augrc", "s_id"), ("augrc", "s_ood"), None)),
)
_FAILURE_LINES: tuple[_Line, ...] = (
    ("AUROC of failures", (("failure", "auroc"),)),
    ("AP", (("failure", "ap"),)),
    ("AP of errors", (("failure", "ap_err"),)),
)
_OOD_LINES: tuple[_Line, ...] = (
    ("AUROC of OOD", (("ood", "auroc"),)),
    ("AUPR in", (("ood", "aupr_in"),)),
    ("AUPR out", (("ood", "aupr_out"),)),
    ("FPR at 95 % TPR", (("ood", "fpr95"),)),
)
_PROBABILITY_LINES: tuple[_Line, ...] = (
    ("NLL", (("probabilities", "nll"),)),
    ("Brier", (("probabilities", "brier"),)),
    ("ECE", (("probabilities", "ece"),)),
)
_GROUP_COLUMNS = (
    ("DS-F1", ("ds_f1", "value")),
    ("DS-AURC", ("ds_aurc", "trapezoid")),
    ("accuracy", ("accuracy",)),
    ("OOD AUROC", ("ood", "auroc")),
    ("FPR95", ("ood", "fpr95")),
)


def _table(document: dict[str, Any], head: tuple[str, ...], lines: tuple[_Line, ...]) -> list[str]:
    body = [[label, *(_cell(document, *path) if path else "" for path in paths)] for label, paths in lines]
    return _aligned([list(head), *body])


def _groups(document: dict[str, Any]) -> list[str]:
    """Each group, then the averages over groups."""
    rows = [["group", "ID", "OOD", *(label for label, _ in _GROUP_COLUMNS)]]
    for name, part in document["groups"].items():
        counts = [f"{part['n_id']:,}", f"{part['n_ood']:,}"]
        rows.append([name, *counts, *(_cell(part, *path) for _, path in _GROUP_COLUMNS)])
    for name, part in document["averages"].items():
        rows.append([f"mean of {name}", "", "", *(_cell(part, *path) for _, path in _GROUP_COLUMNS)])
    return _aligned(rows)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _cell(document: dict[str, Any], *path: str) -> str:
    """A metric, with its interval where there is one."""
    value, interval = _at(document, path), _at(document.get("intervals", {}), path)
    if interval is None:
        return _number(value)
    return f"{_number(value)} [{_number(interval['low'])}, {_number(interval['high'])}]"


def _at(document: dict[str, Any], path: tuple[str, ...]) -> Any:
    place: Any = document
    for key in path:
        place = place.get(key) if place is not None else None
    return place


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if abs(value) < 1000 else f"{value:.6g}"
