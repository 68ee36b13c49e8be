"""`airlock export`: the fused graph as one ONNX file for other runtimes."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from calibration.policy import Policy


@click.command()
@click.argument("bundle", type=click.Path(exists=True, file_okay=False))
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="The ONNX file to write.")
@click.option("--baked", is_flag=True, help="Put a policy's thresholds inside; the graph gains an output `accept`.")
@click.option("--policy", help="Policy to bake: a number in the store or a JSON file; the active one by default.")
@click.option("--store", type=click.Path(file_okay=False), help="Policy store, when it is not in the bundle.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
def command(bundle: str, out: str, baked: bool, policy: str | None, store: str | None, overwrite: bool) -> None:
    """Write the graph of BUNDLE as one self-contained ONNX file.

    The outputs are label, s_id, s_ood, finite and probabilities; with --baked also accept, so that a runtime with no
    gate of ours around it still decides the same. Such a file keeps its thresholds for ever: prefer the service or
    `airlock score` where thresholds may change.

    Example: airlock export bundle --baked --out gate.onnx
    """
    from models.bundle import Bundle
    from models.errors import BundleError
    from models.fuse import bake
    from service.policies import find_policy

    target = Path(out)
    if target.exists() and not overwrite:
        raise BundleError(f"{target} exists already; choose another --out or give --overwrite.")
    if policy and not baked:
        raise click.UsageError("--policy goes with --baked.")
    opened = Bundle.open(bundle)
    model = opened.model
    notes = {"airlock.bundle": opened.hash, "airlock.classes": "\n".join(opened.manifest.classes)}
    if baked:
        chosen = find_policy(opened, policy, store)
        model = bake(model, *_thresholds(chosen, len(opened.manifest.classes)))
        notes["airlock.policy"] = chosen.model_dump_json()
    for key, value in notes.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    try:
        _write(target, model.SerializeToString(deterministic=True))
    except OSError as fault:
        raise BundleError(f"{target} cannot be written ({fault.strerror}); choose another --out.") from fault
    outputs = ", ".join(value.name for value in model.graph.output)
    click.echo(f"{target}: {opened.manifest.name} {opened.manifest.version}, outputs {outputs}")


def _thresholds(policy: "Policy", n_classes: int) -> tuple[float | list[float], float | list[float]]:
    """One pair, or one value a class where the policy has thresholds a class."""
    if policy.per_class is None:
        return policy.tau_id, policy.tau_ood
    tau_id, tau_ood = policy.doors(range(n_classes))
    return tau_id.tolist(), tau_ood.tolist()


def _write(target: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)  # mkstemp makes private files; a graph is for others to run
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
