"""The gate: scores in, decisions out, judged by one immutable view of the active policy.

A worker polls the policy store and swaps the view as a whole, so a request sees one policy from start to end. What
was decided goes to observers (metrics, monitors, ledger), which are called in line and must be quick.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from calibration.errors import CalibrationError
from calibration.policy import Policy
from calibration.store import PolicyStore
from models.bundle import Bundle
from models.runtime import Scored
from service.shadow import ShadowPointer

if TYPE_CHECKING:
    from service.settings import Settings
    from service.web.admission import Admission

logger = logging.getLogger("airlock.gate")


@dataclass(frozen=True)
class PolicyView:
    """The policies in force: the one that judges, and the one that is only watched."""

    policy: Policy | None = None
    shadow: Policy | None = None


class ItemIds(Sequence[str]):
    """Ids of instances whose caller gave none, made when somebody looks."""

    __slots__ = ("_count", "_request_id")

    def __init__(self, request_id: str, count: int) -> None:
        self._request_id = request_id
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        positions = range(self._count)[index]
        if isinstance(positions, range):
            return [f"{self._request_id}-{i}" for i in positions]
        return f"{self._request_id}-{positions}"

    def __iter__(self) -> Iterator[str]:
        return iter(self[:])


@dataclass(slots=True, eq=False)
class DecisionBatch:
    """What was decided for one request; arrays hold one entry an instance and are shared, so nobody writes to them."""

    request_id: str
    ids: Sequence[str]
    time: float
    label: NDArray[np.int64]
    s_id: NDArray[np.float64]
    s_ood: NDArray[np.float64]
    accept: NDArray[np.bool_]
    reason: NDArray[np.uint8]
    policy: Policy
    seconds: float
    batch_size: int
    inputs: NDArray[Any] | None = None
    """What the graph was given; only where the operator asked to keep it."""
    shadow: Policy | None = None
    shadow_accept: NDArray[np.bool_] | None = None
    shadow_reason: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.ids)


class Observer(Protocol):
    """Something that watches decisions in a worker process."""

    async def start(self) -> None:
        """Called once in the running event loop, before the first request."""

    def observe(self, batch: DecisionBatch) -> None:
        """Called for every answered request, on the event loop: microseconds, no blocking."""

    def policy_changed(self, view: PolicyView) -> None:
        """Called after the start and at every swap."""

    async def stop(self) -> None:
        """Called after the last answer, to flush."""


@dataclass(frozen=True)
class ServiceContext:
    """What a worker's parts share."""

    settings: "Settings"
    bundle: Bundle
    store: PolicyStore
    gate: "Gate"
    admission: "Admission"
    state_dir: Path


class NoPolicyError(Exception):
    """No policy is active, so nothing may be decided."""


class Gate:
    """A bundle and its policy store; `judge` turns scores into decisions."""

    def __init__(self, bundle: Bundle, store: PolicyStore) -> None:
        self.bundle = bundle
        self.store = store
        self.shadow = ShadowPointer(store.directory)
        self.view = PolicyView()
        self.observers: Sequence[Observer] = ()
        self.keep_inputs = False
        self._token: object = _UNREAD

    def changed(self) -> bool:
        """Whether the store may hold another view than the present one; two `stat` calls."""
        return (self.store.token(), self.shadow.token()) != self._token

    def load(self) -> tuple[PolicyView, object]:
        """Read the view from disk, blocking; hand the result to `swap`.

        A damaged store keeps the policy that judges now: it was valid, and every answer names it.
        """
        token = (self.store.token(), self.shadow.token())
        view = self.view
        try:
            view = replace(view, policy=self.store.active())
        except CalibrationError as refusal:
            logger.error("the active policy cannot be read, the present one stays: %s", refusal)
        try:
            number = self.shadow.read()
            view = replace(view, shadow=None if number is None else self.store.get(number))
        except CalibrationError as refusal:
            logger.error("the shadow policy cannot be read and is left out: %s", refusal)
            view = replace(view, shadow=None)
        return view, token

    def swap(self, view: PolicyView, token: object) -> None:
        """Make `view` the one that judges, and tell the observers."""
        changed = view != self.view or self._token is _UNREAD
        self.view, self._token = view, token
        if not changed:
            return
        logger.info("policy %s judges, shadow %s", _name(view.policy), _name(view.shadow))
        for observer in self.observers:
            try:
                observer.policy_changed(view)
            except Exception:  # the new policy judges already
                logger.exception("an observer failed at a change of policy")

    def judge(
        self,
        scored: Scored,
        x: NDArray[Any],
        *,
        view: PolicyView,
        request_id: str,
        ids: Sequence[str],
        seconds: float,
        batch_size: int,
    ) -> DecisionBatch:
        """Decide every item of `x` by the given view and tell the observers."""
        policy = view.policy
        if policy is None:
            raise NoPolicyError
        accept, reason = policy.decide(scored.s_id, scored.s_ood, scored.finite, scored.label)
        batch = DecisionBatch(
            request_id, ids, time.time(), scored.label, scored.s_id, scored.s_ood, accept, reason, policy,
            seconds, batch_size, x if self.keep_inputs else None,
        )  # fmt: skip
        if view.shadow is not None:
            batch.shadow = view.shadow
            batch.shadow_accept, batch.shadow_reason = view.shadow.decide(
                scored.s_id, scored.s_ood, scored.finite, scored.label
            )
        for observer in self.observers:
            try:
                observer.observe(batch)
            except Exception:  # watching must never cost a caller their answer
                logger.exception("an observer failed")
        return batch


class _Unread:
    """A token no store ever returns."""


_UNREAD = _Unread()


def _name(policy: Policy | None) -> str:
    return "none" if policy is None else policy.name
