"""`airlock policies`: history, switch, roll back, compare."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.commands.common import emit_json

if TYPE_CHECKING:
    from calibration.policy import Policy
    from calibration.store import PolicyStore

_NUMBERS = {"list": 0, "show": 1, "activate": 1, "rollback": 0, "diff": 2, "history": 0}


@click.command()
@click.argument("place", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("action", type=click.Choice(list(_NUMBERS)), default="list")
@click.argument("numbers", nargs=-1, type=click.IntRange(1))
@click.option("--store", type=click.Path(path_type=Path, file_okay=False), help="The policy store, if not PLACE's own.")
@click.option("--table", type=click.Path(path_type=Path), help="Score table on which diff counts decisions.")
@click.option("--force", is_flag=True, help="Activate even a rejected policy; the force is recorded.")
@click.option("--note", help="A remark to keep with the switch.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(place: Path, action: str, numbers: tuple[int, ...], store: Path | None, **given: Any) -> None:
    """List, show or switch the policies of PLACE, a bundle or a policy store.

    \b
    airlock policies PLACE                         every policy, the active one marked
    airlock policies PLACE show N                  one policy with its evidence
    airlock policies PLACE activate N [--force]    switch; running services follow within a second
    airlock policies PLACE rollback                back to the policy that was active before
    airlock policies PLACE diff A B [--table T]    what changes from A to B
    airlock policies PLACE history                 every switch so far

    \b
    Example:
      airlock policies my-bundle activate 3
    """
    wanted = _NUMBERS[action]
    if len(numbers) != wanted:
        kinds = {0: "no policy number", 1: "one policy number", 2: "two policy numbers"}
        raise click.UsageError(f"{action} takes {kinds[wanted]}, {len(numbers)} arrived.")
    _ACTIONS[action](_open(place, store), numbers, given)


def _open(place: Path, store: Path | None) -> "PolicyStore":
    from calibration.store import PolicyStore

    if not (place / "manifest.json").exists():
        return PolicyStore(store or place)
    from models.bundle import Bundle
    from service.policies import open_store

    return open_store(Bundle.open(place), store)


def _list(store: "PolicyStore", _: tuple[int, ...], given: dict[str, Any]) -> None:
    pointer = store.pointer()
    active = None if pointer is None else pointer.active
    policies = store.list()
    if given["as_json"]:
        emit_json({"active": active, "policies": [policy.model_dump(mode="json") for policy in policies]})
        return
    if not policies:
        click.echo(f"no policies in {store.directory} yet; make one with `airlock calibrate`")
    for policy in policies:
        click.echo(_row(policy, policy.number == active))


def _row(policy: "Policy", active: bool) -> str:
    from service.commands.policy_view import interval, threshold

    mark = click.style("*", fg="green", bold=True) if active else " "
    doors = f"τ_id {threshold(policy.tau_id):>10}  τ_ood {threshold(policy.tau_ood):>10}"
    text = f"{mark} {policy.name}  {policy.created_at:%Y-%m-%d %H:%M}  {policy.method:<10}{policy.status:<11}{doors}"
    if policy.evidence is None:
        return text
    found = policy.evidence.outcome
    f1 = "–" if found.f1.value is None else f"{found.f1.value:.3f}"
    return f"{text}  F1 {f1}  ID kept {interval(found.id_coverage)}  wrong {interval(found.selective_risk)}"


def _show(store: "PolicyStore", numbers: tuple[int, ...], given: dict[str, Any]) -> None:
    from service.commands.policy_view import show

    policy = store.get(numbers[0])
    pointer = store.pointer()
    active = pointer is not None and pointer.active == policy.number
    if given["as_json"]:
        emit_json({"policy": policy.model_dump(mode="json"), "active": active})
    else:
        show(policy, "active" if active else "not active")


def _activate(store: "PolicyStore", numbers: tuple[int, ...], given: dict[str, Any]) -> None:
    policy = store.activate(numbers[0], force=given["force"], note=given["note"])
    _switched(policy, store, given)


def _rollback(store: "PolicyStore", _: tuple[int, ...], given: dict[str, Any]) -> None:
    _switched(store.rollback(note=given["note"]), store, given)


def _switched(policy: "Policy", store: "PolicyStore", given: dict[str, Any]) -> None:
    last = store.history()[-1]
    if given["as_json"]:
        emit_json({"active": policy.number, "switch": last.model_dump(mode="json")})
        return
    forced = ", by force" if last.forced else ""
    click.echo(f"policy {policy.name} ({policy.method}, {policy.status}) is active{forced}")


def _diff(store: "PolicyStore", numbers: tuple[int, ...], given: dict[str, Any]) -> None:
    from service.commands.policy_view import threshold

    old, new = (store.get(number) for number in numbers)
    decisions = None
    if given["table"] is not None:
        from calibration.judge import Diff
        from calibration.table import ScoreTable

        decisions = Diff.between(old, new, ScoreTable.read(given["table"]))
    changes = {
        name: (getattr(old, name), getattr(new, name))
        for name in ("method", "status", "tau_id", "tau_ood", "parameters")
        if getattr(old, name) != getattr(new, name)
    }
    if given["as_json"]:
        documents = [policy.model_dump(mode="json") for policy in (old, new)]
        fields = {name: {"old": documents[0][name], "new": documents[1][name]} for name in changes}
        counts = (
            None if decisions is None else {**vars(decisions), "changed": decisions.changed, "text": str(decisions)}
        )
        emit_json({"old": old.number, "new": new.number, "fields": fields, "decisions": counts})
        return
    click.echo(f"policy {old.name} → {new.name}")
    for name in ("method", "status"):
        if name in changes:
            click.echo(f"  {name:<8}{changes[name][0]} → {changes[name][1]}")
    for name in ("tau_id", "tau_ood"):
        if name in changes:
            click.echo(f"  {name:<8}{threshold(changes[name][0])} → {threshold(changes[name][1])}")
    click.echo("  " + (str(decisions) if decisions else "give --table to count the decisions that change"))


def _history(store: "PolicyStore", _: tuple[int, ...], given: dict[str, Any]) -> None:
    switches = store.history()
    if given["as_json"]:
        emit_json([switch.model_dump(mode="json") for switch in switches])
        return
    if not switches:
        click.echo("no policy was ever activated")
    for switch in switches:
        extra = "".join(f", {part}" for part in ("by force" if switch.forced else "", switch.note or "") if part)
        click.echo(f"{switch.at:%Y-%m-%d %H:%M:%S}  {switch.action:<9} {switch.number:04d} ({switch.status}{extra})")


_ACTIONS = {
    "list": _list,
    "show": _show,
    "activate": _activate,
    "rollback": _rollback,
    "diff": _diff,
    "history": _history,
}
