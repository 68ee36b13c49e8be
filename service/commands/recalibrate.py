"""`airlock recalibrate`: a new policy from new data or from the ledger, set against the active one."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.commands.calibration_inputs import (
    METHODS,
    Data,
    Place,
    calibration_options,
    load_data,
    run_calibration,
)
from service.commands.common import emit_json

if TYPE_CHECKING:
    from calibration.compare import Comparison
    from calibration.policy import Policy
    from calibration.select import Parameters


@click.command()
@click.argument("bundle", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--method", type=click.Choice(METHODS), help="How to choose.  [default: as the active policy]")
@click.option("--since", metavar="SPAN|DATE", help="Labelled decisions of the ledger since then, as in 7d.")
@click.option(
    "--ledger",
    metavar="URL|PATH",
    envvar=["AIRLOCK_MONITORING__LEDGER_URL", "AIRLOCK_STATE_DIR"],
    help="The ledger: a database URL, a file, or the service's state directory.",
)
@calibration_options
@click.option(
    "--activate/--no-activate",
    default=None,
    help="Make it the active policy.  [default: if it validates and is clearly better]",
)
def command(
    bundle: Path | None,
    method: str | None,
    since: str | None,
    ledger: str | None,
    activate: bool | None,
    **given: Any,
) -> None:
    """Make a new policy of BUNDLE and compare it with the active one on the same held-out data.

    Method and parameters are those of the active policy unless given. The new policy takes over only when it
    validates and is clearly better in what its method is for (F1, coverage at the risk limit, or risk at the coverage),
    or with --activate.

    \b
    Example:
      airlock recalibrate my-bundle --since 7d --ledger state/
      airlock recalibrate my-bundle --id new.npz --ood near=a.npz --ood far=b.npz
      airlock recalibrate --store policies/ --table scores.parquet --json
    """
    as_json = given["as_json"]
    place = Place.of(bundle, given["store"])
    if place.store is None:
        raise click.UsageError("recalibrate needs the BUNDLE or the --store whose policy is to be replaced.")
    data = _data(place, since, ledger, given)
    active = place.store.active()
    chosen, parameters = _as_before(active, method, given)
    made = run_calibration(data, chosen, parameters, place, note=given["note"], quiet=as_json)
    comparison = None if active is None else _compare(active, made, parameters)
    from service.commands.policy_fate import keep

    better = None if comparison is None else comparison.better
    than = None if active is None else active.number
    policy, fate = keep(place.store, made.policy, activate=activate, force=given["force"], better=better, than=than)
    _report(policy, fate, active, comparison, as_json)


def _data(place: Place, since: str | None, ledger: str | None, given: dict[str, Any]) -> Data:
    named = given["id_data"] or given["ood_data"] or given["table"]
    if since is None and named:
        return load_data(place.bundle, given["id_data"], given["ood_data"], given["table"], quiet=given["as_json"])
    if named:
        raise click.UsageError("--since takes the ledger's decisions; leave out --id, --ood and --table.")
    if since is None:
        raise click.UsageError("There is nothing to calibrate on: give --since, --id (and --ood), or --table.")
    from calibration.errors import CalibrationError

    if ledger is None:
        raise CalibrationError(
            "There is no ledger to read: name it with --ledger, "
            "which takes a database URL, a file or the service's state directory."
        )
    from service.ledger import score_table

    shown = "ledger" if "://" in ledger else f"ledger {ledger}"
    return Data(score_table(ledger, since, place.hash), (f"{shown} since {since}",))


def _as_before(active: "Policy | None", method: str | None, given: dict[str, Any]) -> "tuple[str, Parameters]":
    """The active policy's method and parameters, with what was given on top."""
    from calibration.select import SELECTORS, Parameters

    names = [item.name for item in fields(Parameters)]
    same = active is not None and active.method in SELECTORS and method in (None, active.method)
    before = {name: active.parameters[name] for name in names if name in active.parameters} if same and active else {}
    asked = {name: given[name] for name in names if given.get(name) is not None}
    chosen = method or (active.method if same and active else "dsf1")
    return chosen, Parameters(**{**before, **asked})


def _compare(active: "Policy", made: Any, parameters: "Parameters") -> "Comparison":
    from calibration.compare import compare
    from calibration.select import get_selector
    from calibration.select.base import stated_mix

    table = stated_mix(made.splits.evaluation, parameters)
    return compare(active, made.policy, table, goal=get_selector(made.policy.method).goal, seed=parameters.seed)


def _report(
    policy: "Policy", fate: Any, active: "Policy | None", comparison: "Comparison | None", as_json: bool
) -> None:
    from service.commands.policy_view import show, show_comparison

    if as_json:
        emit_json(
            {
                "policy": policy.model_dump(mode="json"),
                "active": fate.active,
                "stored": str(fate.path),
                "compared_with": None if active is None else active.number,
                "comparison": None if comparison is None else comparison.model_dump(mode="json"),
                "diff": None if comparison is None else str(comparison.diff),
            }
        )
    else:
        show(policy, fate.text)
        if active is not None and comparison is not None:
            show_comparison(comparison, active)
    if policy.status == "rejected":
        click.echo(f"airlock: policy {policy.name} is rejected: {'; '.join(policy.status_reasons)}", err=True)
        raise SystemExit(1)
