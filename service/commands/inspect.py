"""`airlock inspect`: what a model or a bundle is, and which scores it can have."""

from pathlib import Path
from typing import Any

import click

from service.commands.common import emit_json


@click.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--input", "input_name", help="Which input of the model, where it has several.")
@click.option("--output", "output_name", help="Which output holds the class scores, where it has several.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(path: str, input_name: str | None, output_name: str | None, as_json: bool) -> None:
    """Say what PATH is: a MODEL.onnx (its head, the scores that are possible) or a BUNDLE (verified, with hashes).

    Example: airlock inspect resnet.onnx
    """
    if Path(path).is_dir():
        if input_name or output_name:
            raise click.UsageError("--input and --output go with a model; a bundle has settled them.")
        document = _bundle(path)
    else:
        document = _model(path, input_name, output_name)
    if as_json:
        emit_json(document)
        return
    for key, value in document.items():
        _show(key, value)


def _model(path: str, input_name: str | None, output_name: str | None) -> dict[str, Any]:
    from models.bundle import file_sha256
    from models.classifier import Classifier

    classifier = Classifier.open(path, input=input_name, output=output_name)
    return {
        "model": path,
        "sha256": file_sha256(Path(path)),
        "findings": list(classifier.findings),
        **_signals(classifier),
    }


def _bundle(path: str) -> dict[str, Any]:
    from models.bundle import Bundle

    bundle = Bundle.open(path)
    manifest = bundle.manifest
    return {
        "bundle": f"{manifest.name} {manifest.version}, verified",
        "hash": bundle.hash,
        "created_at": manifest.created_at,
        "input": manifest.input.describe(),
        "s_id": manifest.scores["s_id"]["spec"],
        "s_ood": manifest.scores["s_ood"]["spec"],
        "findings": manifest.provenance.get("findings", []),
        **_signals(bundle.classifier(), manifest.classes),
        "runtime": manifest.runtime.model_dump(),
        "files": dict(manifest.files),
        "policies": sorted(file.stem for file in bundle.policies_dir.glob("[0-9]*.json")),
        "provenance": manifest.provenance,
    }


def _signals(classifier: Any, classes: Any = None) -> dict[str, Any]:
    from models.scores import possible_scores, registry

    possible = possible_scores(classifier.features is not None, classifier.head is not None)
    return {
        "classes": list(classes or classifier.classes or range(classifier.n_classes)),
        "logits": classifier.logits_kind,
        "head": None
        if classifier.head is None
        else {"kind": classifier.head.kind, "features": classifier.head.weight.shape[1]},
        "possible_scores": possible,
        "impossible_scores": [name for name in registry() if name not in possible],
    }


def _show(key: str, value: Any) -> None:
    label = key if key.startswith("s_") else key.replace("_", " ")
    if key == "provenance":
        return
    if isinstance(value, dict):
        value = ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, list):
        value = "\n".join(f"  {item}" for item in value) if key == "findings" else _shortened(value)
    if value in (None, ""):
        value = "none"
    click.echo(f"{label}:\n{value}" if key == "findings" else f"{label}: {value}")


def _shortened(items: list[Any], limit: int = 40) -> str:
    shown = ", ".join(str(item) for item in items[:limit])
    return f"{shown}, … {len(items)} in all" if len(items) > limit else shown
