"""What becomes of a new policy: stored, and activated when it has earned it or when told to."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from calibration.policy import Policy
from calibration.store import PolicyStore


@dataclass(frozen=True)
class Fate:
    """Where a policy went."""

    path: Path
    active: bool
    text: str


def keep(
    store: PolicyStore,
    policy: Policy,
    *,
    activate: bool | None,
    force: bool,
    better: bool | None,
    than: int | None = None,
) -> tuple[Policy, Fate]:
    """Store a policy and decide on its activation.

    `activate` True or False is an order. None leaves it to the evidence: a validated policy takes over when there is
    no active one, or when it is `better` (None where no comparison was made) `than` the one that is active. Who
    switched or rolled back while this policy was in the making has the last word.
    """
    present = store.pointer()
    stored = store.add(policy)
    assert stored.number is not None
    path = store.directory / f"{stored.name}.json"
    overtaken = bool(better) and present is not None and present.active != than
    earned = stored.status == "validated" and (present is None or bool(better)) and not overtaken
    if activate or (activate is None and earned):
        store.activate(stored.number, force=force)
        return stored, Fate(path, True, "active now, by force" if stored.status == "rejected" else "active now")
    switch = shlex.join(["airlock", "policies", str(store.directory), "activate", str(stored.number)])
    hint = f"stored, not active; switch with: {switch}"
    if overtaken and present is not None and activate is None:
        hint = hint.replace("not active;", f"not active since policy {present.active} became so meanwhile;")
    return stored, Fate(path, False, "stored, not active" if stored.status == "rejected" else hint)
