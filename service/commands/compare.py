"""`airlock compare`: fit every possible score, print the table, recommend a pair."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.commands.common import emit_json, image_option, progress

if TYPE_CHECKING:
    from models.classifier import Classifier
    from models.inputs import ImageInput, TensorInput
    from models.scores import FitData
    from service.commands.comparison import Evaluation, Line, Report

FITTED_ON_ID = "No --fit was given: half of --id was fitted on and the other half judged."


@click.command()
@click.argument("model", metavar="BUNDLE_OR_MODEL", type=click.Path(exists=True))
@click.option("--id", "id_data", required=True, metavar="DATA", help="Labelled in-distribution data to judge on.")
@click.option("--ood", "ood_data", required=True, multiple=True, metavar="[GROUP=]DATA", help="Outliers; repeatable.")
@click.option("--fit", metavar="DATA", help="In-distribution training data.  [default: half of --id]")
@click.option("--scores", metavar="LIST", help="Only these scores, with commas between.  [default: every possible one]")
@click.option("--image", help="For a MODEL that takes images: a JSON object or file, as in `airlock build`.")
@click.option("--output", "output_name", help="Which output of a MODEL holds the class scores, where it has several.")
@click.option("--out", type=click.Path(path_type=Path), help="Also write the table: a .csv or .json file.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the split of --id.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(**options: Any) -> None:
    """Fit every possible score on a classifier's in-distribution data and judge it on each group of outliers.

    F1 and AURC are of the score alone on ID and OOD together; DS-F1 and DS-AURC pair it with msp as s_id. The cost is
    what the score adds to the graph, in microseconds a sample at a batch of 32 on one thread.

    \b
    Example:
      airlock compare bundle --fit train.npz --id val.npz --ood near=coats.npz --ood far=textures.npz --out table.csv
    """
    from service.commands.comparison import compare_scores

    out: Path | None = options["out"]
    if out is not None and out.suffix not in (".csv", ".json"):
        raise click.UsageError(f"--out takes a .csv or a .json file, not {out.name}.")
    classifier, inputs, classes = _open(options["model"], options["image"], options["output_name"])
    fit, data, note = _read(classifier, inputs, classes, options)
    ids = _wanted(options["scores"], fit)
    with progress("fitting and judging", len(ids), quiet=options["as_json"]) as advance:
        report = compare_scores(ids, fit, data, advance)
    document = {"model": options["model"], "note": note, **report.document()}
    if out is not None:
        _write(out, report, document)
    if options["as_json"]:
        emit_json(document)
    else:
        click.echo(_text(report, note))
        if out is not None:
            click.echo(f"\nwritten to {out}")


def _open(
    path: str, image: str | None, output: str | None
) -> "tuple[Classifier, ImageInput | TensorInput, Sequence[str] | None]":
    from models.build import tensor_input
    from models.bundle import Bundle
    from models.classifier import Classifier
    from models.fuse import accept_pixels

    if Path(path).is_dir():
        bundle = Bundle.open(path)
        return bundle.classifier(), bundle.manifest.input, bundle.manifest.classes
    classifier = Classifier.open(path, output=output)
    spec = image_option(image)
    if spec is None:
        return classifier, tensor_input(classifier), classifier.classes
    return accept_pixels(classifier, spec), spec, classifier.classes


def _read(
    classifier: "Classifier", inputs: Any, classes: Sequence[str] | None, options: dict[str, Any]
) -> "tuple[FitData, Evaluation, str | None]":
    import numpy as np

    from models.scores import FitData
    from models.signals import Signals
    from service.commands.comparison import Evaluation

    def rows(signals: Signals, index: Any) -> Signals:
        return Signals(signals.logits[index], None if signals.features is None else signals.features[index])

    signals, labels = _labelled(classifier, inputs, classes, options["id_data"])
    groups = {name: _outliers(classifier, inputs, paths) for name, paths in _groups(options["ood_data"]).items()}
    if options["fit"] is not None:
        fit_signals, fit_labels = _labelled(classifier, inputs, classes, options["fit"])
        return FitData.of(fit_signals, fit_labels, classifier.head), Evaluation(signals, labels, groups), None
    order = np.random.default_rng(options["seed"]).permutation(len(labels))
    first, second = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
    fit = FitData.of(rows(signals, first), labels[first], classifier.head)
    return fit, Evaluation(rows(signals, second), labels[second], groups), FITTED_ON_ID


def _labelled(classifier: "Classifier", inputs: Any, classes: Sequence[str] | None, arg: str) -> tuple[Any, Any]:
    from models.data import load_arrays
    from models.errors import DataError

    x, y = load_arrays(arg, inputs, classes=classes)
    if y is None:
        raise DataError(f"{arg} has no labels; --id and --fit need the true class of every item.")
    if (y < 0).any() or (y >= classifier.n_classes).any():
        raise DataError(f"{arg} holds items of no known class; in-distribution data has classes 0 to "
                        f"{classifier.n_classes - 1} only, so move the others to --ood.")  # fmt: skip
    return classifier.signals(x), y


def _outliers(classifier: "Classifier", inputs: Any, paths: list[str]) -> Any:
    from models.data import Columns, load_arrays
    from models.signals import join

    return join([classifier.signals(load_arrays(path, inputs, columns=Columns(labels=False))[0]) for path in paths])


def _groups(arguments: Sequence[str]) -> dict[str, list[str]]:
    """`near=a.npz` names the group, a bare path is its own; a name given twice joins the data."""
    groups: dict[str, list[str]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or Path(argument).exists():
            name, path = Path(argument.rstrip("/")).name.split(".")[0] or "ood", argument
        if not name.strip() or not path:
            raise click.UsageError(f"--ood takes DATA or GROUP=DATA, not {argument!r}.")
        groups.setdefault(name, []).append(path)
    return groups


def _wanted(text: str | None, fit: "FitData") -> list[str]:
    from models.scores import get_score, possible_scores

    if text is not None:
        wanted = dict.fromkeys(get_score(id.strip()).id for id in text.split(",") if id.strip())
        if not wanted:
            raise click.UsageError("--scores names no score; give ids with commas between, as in msp,vim,knn.")
        return list(wanted)
    return possible_scores(fit.has_features, fit.head is not None, fit.has_labels)


COLUMNS = ("F1", "AURC", "DS-F1", "DS-AURC", "AUROC", "FPR95", "µs")


def _text(report: "Report", note: str | None) -> str:
    parts = [] if note is None else [note, ""]
    for group, size in report.groups.items():
        parts.append(f"{group}: {report.n_id:,} ID rows (accuracy {report.accuracy:.4f}), {size:,} OOD rows")
        parts += [*_group_table(report, [x for x in report.lines if x.group == group]), ""]
    parts += [f"{id} was left out: {why}" for id, why in report.refused.items()]
    found = report.recommendation
    parts += [f"Recommended: --s-id {found.s_id} --s-ood {found.s_ood}", f"  {found.reason}."]
    return "\n".join(parts)


def _group_table(report: "Report", lines: "list[Line]") -> list[str]:
    """Best DS-F1 first; the recommended s_ood is marked."""
    width = max(len(line.score) for line in lines) + 2
    head = " " * width + "".join(f"{name:>9}" for name in COLUMNS)
    body = []
    for x in sorted(lines, key=lambda line: -line.ds_f1):
        mark = "*" if x.score == report.recommendation.s_ood else " "
        figures = "".join(f"{v:9.4f}" for v in (x.f1, x.aurc, x.ds_f1, x.ds_aurc, x.auroc, x.fpr95))
        body.append(f"{mark} {x.score:<{width - 2}}{figures}{x.cost_us:9.1f}")
    return [head, *body]


def _write(path: Path, report: "Report", document: dict[str, Any]) -> None:
    from dataclasses import asdict

    import orjson

    from calibration.store import write_atomic

    if path.suffix == ".json":
        content = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY)
    else:
        text = io.StringIO()
        rows = [asdict(line) for line in report.lines]
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode()
    write_atomic(path, content)
