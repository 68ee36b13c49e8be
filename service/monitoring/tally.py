"""Decisions of many requests into the counters, in a few numpy calls a group."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.policy import Policy
from service.gate import DecisionBatch
from service.monitoring.layout import BATCHES, MAX_CUTS, MONITOR_SIZES, SECONDS, Layout
from service.monitoring.reference import SCORES, near_widths, score_cuts

Array = NDArray[np.float64]
_SECONDS, _BATCHES = np.array(SECONDS), np.array(BATCHES)


@dataclass(frozen=True, eq=False)
class Group:
    """The decisions of several requests under one policy, column by column."""

    policy: Policy
    batches: list[DecisionBatch]
    label: NDArray[np.int64]
    s_id: Array
    s_ood: Array
    accept: NDArray[np.bool_]
    reason: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.reason)

    @classmethod
    def of(cls, batches: list[DecisionBatch]) -> "Group":
        """Join requests that one policy judged."""
        return cls(
            batches[0].policy,
            batches,
            _join([batch.label for batch in batches]),
            _join([batch.s_id for batch in batches]),
            _join([batch.s_ood for batch in batches]),
            _join([batch.accept for batch in batches]),
            _join([batch.reason for batch in batches]),
        )


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """One column from many; where every request had a single item, plain numbers are quicker to join than arrays."""
    try:
        return np.array([part.item() for part in parts])
    except ValueError:  # a request with several items
        return np.concatenate(parts)


def by_policy(batches: Sequence[DecisionBatch]) -> list[Group]:
    """Runs of requests with the same policy, in order; nearly always a single one."""
    runs: list[list[DecisionBatch]] = []
    for batch in batches:
        if runs and runs[-1][0].policy is batch.policy:
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return [Group.of(run) for run in runs]


class Tally:
    """Adds groups to one worker's counters."""

    def __init__(self, layout: Layout, fields: dict[str, Array], near_mass: float) -> None:
        self._fields = fields
        self._classes = len(layout.classes)
        self._buckets = {name: np.array(ends) for name, ends in layout.buckets.items()}
        self._near_mass = near_mass
        self._near: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
        self._policy: Policy | None = None
        self.cuts: dict[str, Array] = {score: np.empty(0) for score in SCORES}

    def watch(self, policy: Policy) -> None:
        """Start the per-policy counters over when the policy is another one than they were counted for."""
        if policy is self._policy:
            return
        self._policy = policy
        self.cuts = {score: score_cuts(policy, score)[0][:MAX_CUTS] for score in SCORES}
        self._near = near_widths(policy, self._near_mass)
        number = float(policy.number or 0)
        if self._fields["policy"][0] == number:
            return
        for name in MONITOR_SIZES:
            self._fields[name][:] = 0.0
        # The clock makes the epoch unlike any before it, also that of an earlier server in this directory.
        self._fields["epoch"][0], self._fields["policy"][0] = float(time.time_ns() // 1000), number

    def add(self, group: Group) -> None:
        """Count a group."""
        self.watch(group.policy)
        fields = self._fields
        fields["decisions"] += np.bincount(group.reason, minlength=len(fields["decisions"]))
        self._add_predictions(group)
        self._add_scores(group)
        self._add_near(group)
        self._add_runs(group)
        fields["decided"] += len(group)
        fields["accepted"] += np.count_nonzero(group.accept)
        shadowed = [batch for batch in group.batches if batch.shadow_accept is not None]
        if shadowed:
            self._add_shadow(shadowed)

    def _add_predictions(self, group: Group) -> None:
        other = self._classes
        known = (group.label >= 0) & (group.label < other)
        index = 2 * np.where(known, group.label, other) + group.accept
        self._fields["predictions"] += np.bincount(index, minlength=2 * (other + 1))

    def _add_scores(self, group: Group) -> None:
        finite = np.isfinite(group.s_id) & np.isfinite(group.s_ood)
        self._fields["scored"] += np.count_nonzero(finite)
        for score, column in (("s_id", group.s_id[finite]), ("s_ood", group.s_ood[finite])):
            _add_histogram(self._fields[score], self._buckets[score], column)
            self._fields[f"{score}_sum"] += column.sum()
            cuts = self.cuts[score]
            self._fields[f"{score}_less"][: len(cuts)] += _counts_up_to(cuts, column, "right")
            self._fields[f"{score}_at_most"][: len(cuts)] += _counts_up_to(cuts, column, "left")

    def _add_near(self, group: Group) -> None:
        """Near: the decision would be another one if both thresholds moved by a little."""
        below_id, above_id, below_ood, above_ood = self._near
        if not (below_id or above_id or below_ood or above_ood):
            return
        tau_id, tau_ood = thresholds(group.policy, group.label)
        loose = (group.s_id >= tau_id - below_id) & (group.s_ood >= tau_ood - below_ood)
        tight = (group.s_id >= tau_id + above_id) & (group.s_ood >= tau_ood + above_ood)
        self._fields["near"] += np.count_nonzero(loose & ~tight)

    def _add_runs(self, group: Group) -> None:
        seconds = np.array([batch.seconds for batch in group.batches])
        sizes = np.array([batch.batch_size for batch in group.batches], dtype=np.float64)
        _add_histogram(self._fields["seconds"], _SECONDS, seconds)
        _add_histogram(self._fields["batch"], _BATCHES, sizes)
        self._fields["seconds_sum"] += seconds.sum()
        self._fields["batch_sum"] += sizes.sum()

    def _add_shadow(self, batches: list[DecisionBatch]) -> None:
        now = np.concatenate([batch.accept for batch in batches])
        then = np.concatenate([batch.shadow_accept for batch in batches if batch.shadow_accept is not None])
        self._fields["shadow"] += (np.count_nonzero(~now & then), np.count_nonzero(now & ~then))


def thresholds(policy: Policy, label: NDArray[np.int64]) -> tuple[Any, Any]:
    """(τ_id, τ_ood) of every item; plain floats for a policy without per-class doors."""
    if policy.per_class is None:
        return policy.tau_id, policy.tau_ood
    present, inverse = np.unique(label, return_inverse=True)
    pairs = np.array([policy.thresholds(int(k)) for k in present])
    return pairs[inverse, 0], pairs[inverse, 1]


def _add_histogram(counts: Array, ends: Array, values: Array) -> None:
    """Prometheus buckets hold values ≤ their upper end."""
    counts += np.bincount(np.searchsorted(ends, values, side="left"), minlength=len(ends) + 1)


def _counts_up_to(cuts: Array, values: Array, side: Any) -> NDArray[np.int64]:
    """How many values lie below every cut (`right`), or at or below it (`left`)."""
    bins = np.bincount(np.searchsorted(cuts, values, side=side), minlength=len(cuts) + 1)
    total: NDArray[np.int64] = np.cumsum(bins[:-1])
    return total
