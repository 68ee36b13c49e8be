"""`airlock calibrate`: choose thresholds, validate them on held-out data, store the policy."""

from pathlib import Path
from typing import Any

import click

from service.commands.calibration_inputs import (
    METHODS,
    Place,
    calibration_options,
    load_data,
    run_calibration,
)
from service.commands.common import emit_json


@click.command()
@click.argument("bundle", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--method", type=click.Choice(METHODS), default="dsf1", show_default=True, help="How to choose.")
@calibration_options
@click.option("--out", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Also write the policy to a file.")
@click.option(
    "--activate/--no-activate", default=None, help="Make it the active policy.  [default: if none is and it validates]"
)
def command(bundle: Path | None, method: str, out: Path | None, activate: bool | None, **given: Any) -> None:
    """Choose the two thresholds of BUNDLE, with evidence.

    \b
    dsf1       largest F1 over all pairs of thresholds, exact
    certified  largest coverage with risk <= --risk, certified at --delta over both doors
    sgr        the same by the published binary search over one door
    coverage   keep --min-coverage of ID (90 %), fewest wrong accepted
    tpr        each door keeps --min-coverage (95 %) of what it should let through

    The data are split: thresholds are chosen on one part and judged on another that nothing else has seen (and
    certified on a third). A policy that misses its own claim is stored as rejected and the exit code is 1.

    \b
    Example:
      airlock calibrate my-bundle --id val.npz --ood near=a.npz --ood far=b.npz --method certified --risk 0.05
      airlock calibrate --table scores.parquet --method dsf1 --out policy.json --json
    """
    from calibration.errors import StoreError

    as_json, store = given["as_json"], given["store"]
    place = Place.of(bundle, store)
    if place.store is None and out is None:
        raise click.UsageError("There is nowhere to put the policy: name a BUNDLE, --store or --out.")
    if place.store is None and activate:
        raise click.UsageError("--activate needs a BUNDLE or --store.")
    if out is not None and not out.absolute().parent.is_dir():
        raise StoreError(f"The folder {out.parent} does not exist; make it first or write elsewhere.")
    data = load_data(place.bundle, given["id_data"], given["ood_data"], given["table"], quiet=as_json)
    parameters = _parameters(given)
    policy = run_calibration(data, method, parameters, place, note=given["note"], quiet=as_json).policy
    fate = None
    if place.store is not None:
        from service.commands.policy_fate import keep

        policy, fate = keep(place.store, policy, activate=activate, force=given["force"], better=None)
    if out is not None:
        policy.write(out)
    _report(policy, fate, out, as_json)


def _parameters(given: dict[str, Any]) -> Any:
    from calibration.select import Parameters

    names = ("risk", "delta", "prevalence", "min_coverage", "split", "seed", "per_class")
    return Parameters(**{name: given[name] for name in names if given[name] is not None})


def _report(policy: Any, fate: Any, out: Path | None, as_json: bool) -> None:
    from service.commands.policy_view import show

    if as_json:
        emit_json(
            {
                "policy": policy.model_dump(mode="json"),
                "active": bool(fate and fate.active),
                "stored": None if fate is None else str(fate.path),
                "out": None if out is None else str(out),
            }
        )
    else:
        show(policy, None if fate is None else fate.text)
        if out is not None:
            click.echo(f"written to {out}")
    if policy.status == "rejected":
        click.echo(f"airlock: policy {policy.name} is rejected: {'; '.join(policy.status_reasons)}", err=True)
        raise SystemExit(1)
