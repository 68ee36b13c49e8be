"""`airlock build`: any ONNX classifier becomes a bundle."""

import sys
from pathlib import Path
from typing import Any

import click

from service.commands.common import emit_json, image_option, progress


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False))
@click.option("--fit", help="In-distribution training data the scores are fitted on (.npz, Parquet, image folder, …).")
@click.option("--s-id", "s_id", default="msp", show_default=True, help="Score of the label: can it be trusted?")
@click.option("--s-ood", "s_ood", default="vim", show_default=True, help="Score of the input: like the training data?")
@click.option("--out", required=True, type=click.Path(), help="Directory of the new bundle.")
@click.option("--name", help="Name of the model in answers; the file's name by default.")
@click.option("--version", "version", default="1", show_default=True, help="Version of the model in answers.")
@click.option("--classes", help="Class names in order: comma-separated, or a file with one a line.")
@click.option("--image", help='Takes images: a JSON object or file, e.g. \'{"height": 224, "width": 224}\'.')
@click.option("--input", "input_name", help="Which input of the model, where it has several.")
@click.option("--output", "output_name", help="Which output holds the class scores, where it has several.")
@click.option(
    "--optimization",
    default="all",
    show_default=True,
    type=click.Choice(["disable", "basic", "extended", "all"]),
    help="ONNX Runtime level, pinned in the bundle.",
)
@click.option("--max-batch", default=256, show_default=True, type=click.IntRange(1), help="Largest batch run at once.")
@click.option("--tune", is_flag=True, help="Search the scores' parameters on --val-id and --val-ood.")
@click.option("--val-id", help="Labelled in-distribution validation data, for --tune and for fitting a temperature.")
@click.option("--val-ood", multiple=True, help="Out-of-distribution validation data for --tune; may be repeated.")
@click.option("--overwrite", is_flag=True, help="Replace a bundle that is there already.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def command(**options: Any) -> None:
    """Make a bundle from MODEL.onnx: find its head, fit two scores, fuse everything into one graph.

    Example: airlock build resnet.onnx --fit train.npz --s-id msp --s-ood vim --out bundle
    """  # fmt: skip
    from models.build import Recipe, Validation, build
    from models.classifier import Classifier
    from models.runtime import RuntimeOptions

    if options["tune"] and not options["val_id"]:
        raise click.UsageError("--tune searches on validation data; name some with --val-id.")
    path = Path(options["model"])
    classifier = Classifier.open(path, input=options["input_name"], output=options["output_name"])
    image = image_option(options["image"])
    classes = _classes(options["classes"])
    recipe = Recipe(
        s_id=options["s_id"],
        s_ood=options["s_ood"],
        name=options["name"] or _safe_name(path.stem),
        version=options["version"],
        classes=classes,
        image=image,
        runtime=RuntimeOptions(optimization=options["optimization"], max_batch=options["max_batch"]),
    )
    validation = None
    if options["val_id"]:
        validation = Validation(options["val_id"], options["val_ood"], tune=options["tune"])
    with progress("fitting", None) as advance:
        bundle = build(path, options["fit"], options["out"], recipe, classifier=classifier, validation=validation,
                       overwrite=options["overwrite"], progress=advance, tuning=_tell)  # fmt: skip
    if options["as_json"]:
        emit_json({"path": str(bundle.path), "hash": bundle.hash, "manifest": bundle.manifest.model_dump(mode="json")})
        return
    manifest = bundle.manifest
    for finding in classifier.findings:
        click.echo(f"  {finding}")
    click.echo(f"{bundle.path}: {manifest.name} {manifest.version}, {len(manifest.classes)} classes, "
               f"takes {manifest.input.describe()}")  # fmt: skip
    for role in ("s_id", "s_ood"):
        click.echo(f"  {role:5} = {manifest.scores[role]['spec']}")
        for note in manifest.scores[role]["notes"]:
            click.echo(f"          {note}")
        if role in manifest.provenance["tuning"]:
            record = manifest.provenance["tuning"][role]
            click.echo(f"          best of {len(record['trials'])} settings by {record['objective']}")
    click.echo(f"  hash  = {bundle.hash}")
    click.echo(
        f"Next: airlock calibrate {bundle.path} --id VAL --ood OOD   (it has no policy yet, so it accepts nothing)"
    )


def _tell(role: str, done: int, total: int) -> None:
    """A line on a terminal while settings are tried."""
    if sys.stderr.isatty():
        click.echo(f"\r  tuning {role}: {done} of {total} settings", nl=done == total, err=True)


def _classes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    lines = text.split(",") if "," in text and not Path(text).is_file() else _lines(text)
    return tuple(line.strip() for line in lines if line.strip())


def _lines(path: str) -> list[str]:
    from models.errors import BundleError

    try:
        return Path(path).read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is no UTF-8 text"
        raise BundleError(
            f"--classes names {path}, which cannot be read ({reason}); give a file with one class a line, or the names "
            "with commas between."
        ) from fault


def _safe_name(stem: str) -> str:
    kept = "".join(char if (char.isalnum() and char.isascii()) or char in "._-" else "-" for char in stem)
    return kept.strip("._-")[:100] or "classifier"
