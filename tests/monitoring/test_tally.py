"""Counting in groups: however requests fall into groups, the counters say what a plain loop would."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.policy import ClassThresholds, Policy
from service.gate import DecisionBatch
from service.monitoring.layout import BATCHES, SECONDS, Layout
from service.monitoring.reference import SCORES, near_widths, score_cuts
from service.monitoring.slots import Slot
from service.monitoring.tally import Tally, by_policy

CLASSES = ("cat", "dog")


def _batch(policy: Policy, rng: np.random.Generator, n: int, shadow: Policy | None = None) -> DecisionBatch:
    s_id, s_ood = rng.normal(1, 2, n), rng.normal(1, 2, n)
    s_id[rng.random(n) < 0.1] = np.nan
    label = rng.integers(0, 4, n)
    accept, reason = policy.decide(s_id, s_ood, label=label)
    batch = DecisionBatch(
        "r", [f"r-{i}" for i in range(n)], 0.0, label, s_id, s_ood, accept, reason, policy, 0.003, n
    )  # fmt: skip
    if shadow is not None:
        batch.shadow, batch.shadow_accept = shadow, shadow.decide(s_id, s_ood, label=label).accept
    return batch


def _layout(policy: Policy) -> Layout:
    return Layout(CLASSES, {score: tuple(score_cuts(policy, score)[0].tolist()) for score in SCORES})


def _looped(policy: Policy, layout: Layout, batches: list[DecisionBatch]) -> dict[str, Any]:
    """The same counts by the plainest code."""
    found: dict[str, Any] = {name: np.zeros(part.stop - part.start) for name, part in layout.fields.items()}
    widths = near_widths(policy, 0.02)
    for batch in batches:
        found["seconds"][sum(batch.seconds > end for end in SECONDS)] += 1
        found["batch"][sum(batch.batch_size > end for end in BATCHES)] += 1
        for i in range(len(batch)):
            a, b, label, accept = batch.s_id[i], batch.s_ood[i], int(batch.label[i]), bool(batch.accept[i])
            found["decisions"][batch.reason[i]] += 1
            found["predictions"][2 * min(label, len(CLASSES)) + accept] += 1
            found["decided"] += 1
            found["accepted"] += accept
            if batch.shadow_accept is not None and batch.shadow_accept[i] != accept:
                found["shadow"][0 if batch.shadow_accept[i] else 1] += 1
            tau_id, tau_ood = policy.thresholds(label)
            loose = a >= tau_id - widths[0] and b >= tau_ood - widths[2]
            tight = a >= tau_id + widths[1] and b >= tau_ood + widths[3]
            found["near"] += loose and not tight
            if not (np.isfinite(a) and np.isfinite(b)):
                continue
            found["scored"] += 1
            for score, value in (("s_id", a), ("s_ood", b)):
                found[score][sum(value > end for end in layout.buckets[score])] += 1
                for j, cut in enumerate(score_cuts(policy, score)[0]):
                    found[f"{score}_less"][j] += value < cut
                    found[f"{score}_at_most"][j] += value <= cut
    return found


@settings(deadline=None, derandomize=True, max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    cuts=st.sets(st.integers(1, 8)),
    seed=st.integers(0, 1000),
    shadowed=st.booleans(),
)
def test_groups_count_what_a_plain_loop_counts(
    numbered: Policy, tmp_path_factory: Any, sizes: list[int], cuts: set[int], seed: int, shadowed: bool
) -> None:
    rng = np.random.default_rng(seed)
    layout = _layout(numbered)
    slot = Slot.claim(tmp_path_factory.mktemp("slots"), layout)
    tally = Tally(layout, slot.fields, 0.02)
    other = numbered.model_copy(update={"tau_id": numbered.tau_id + 0.5})
    batches = [_batch(numbered, rng, n, other if shadowed and i % 3 else None) for i, n in enumerate(sizes)]
    bounds = [0, *sorted(cut for cut in cuts if cut < len(batches)), len(batches)]
    for start, stop in pairwise(bounds):
        for group in by_policy(batches[start:stop]):
            tally.add(group)
    for name, expected in _looped(numbered, layout, batches).items():
        if name in {"epoch", "policy"} or name.endswith("_sum"):
            continue
        assert slot.fields[name].tolist() == expected.tolist(), name
    finite = np.concatenate([b.s_id[np.isfinite(b.s_id) & np.isfinite(b.s_ood)] for b in batches])
    assert slot.fields["s_id_sum"][0] == pytest.approx(finite.sum())


def test_per_class_doors_decide_what_is_near(numbered: Policy, tmp_path: Path) -> None:
    doors = (ClassThresholds(label=1, tau_id=numbered.tau_id + 3, tau_ood=numbered.tau_ood),)
    policy = numbered.model_copy(update={"per_class": doors})
    layout = _layout(policy)
    slot = Slot.claim(tmp_path, layout)
    tally = Tally(layout, slot.fields, 0.02)
    batches = [_batch(policy, np.random.default_rng(0), 200)]
    tally.add(by_policy(batches)[0])
    assert slot.fields["near"][0] == _looped(policy, layout, batches)["near"][0] > 0


def test_another_policy_starts_its_own_counts_and_keeps_the_totals(numbered: Policy, tmp_path: Path) -> None:
    layout = _layout(numbered)
    slot = Slot.claim(tmp_path, layout)
    tally = Tally(layout, slot.fields, 0.02)
    second = numbered.model_copy(update={"number": 2})
    rng = np.random.default_rng(0)
    epochs = []
    for policy, n in ((numbered, 10), (second, 5), (numbered, 3)):
        for group in by_policy([_batch(policy, rng, n)]):
            tally.add(group)
        assert slot.fields["decided"][0] == n
        assert slot.fields["policy"][0] == policy.number
        epochs.append(slot.fields["epoch"][0])
    assert slot.fields["decisions"].sum() == 18
    assert len(set(epochs)) == 3


def test_requests_of_two_policies_in_one_group_are_told_apart(numbered: Policy) -> None:
    rng = np.random.default_rng(0)
    second = numbered.model_copy(update={"number": 2})
    policies = [numbered, numbered, second, numbered]
    groups = by_policy([_batch(policy, rng, 2) for policy in policies])
    assert [(group.policy.number, len(group)) for group in groups] == [(1, 4), (2, 2), (1, 2)]
