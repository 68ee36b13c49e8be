"""A policy decides as section 1 of its contract says, and survives the way to disk bit for bit."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibration.errors import PolicyError
from calibration.policy import REASONS, ClassThresholds, Policy
from calibration.thresholds import OPEN

scores = st.floats(allow_nan=True, allow_infinity=True, width=64)
thresholds = st.one_of(st.just(OPEN), st.floats(allow_nan=False, allow_infinity=False))


def verdict(s_id: float, s_ood: float, finite: bool, tau_id: float, tau_ood: float) -> str | None:
    """The rule in words, one row at a time."""
    if not finite or not math.isfinite(s_id) or not math.isfinite(s_ood):
        return "not_finite"
    if s_id < tau_id and s_ood < tau_ood:
        return "low_both"
    if s_id < tau_id:
        return "low_id"
    return "low_ood" if s_ood < tau_ood else None


@given(
    rows=st.lists(st.tuples(scores, scores, st.booleans()), max_size=40),
    tau_id=thresholds,
    tau_ood=thresholds,
)
def test_decisions_follow_the_rule_for_any_batch(
    rows: list[tuple[float, float, bool]], tau_id: float, tau_ood: float
) -> None:
    policy = Policy(tau_id=tau_id, tau_ood=tau_ood)
    s_id, s_ood, finite = (np.array([row[k] for row in rows]) for k in range(3))
    decisions = policy.decide(s_id.astype(float), s_ood.astype(float), finite.astype(bool))
    assert decisions.reasons == [verdict(*row, tau_id, tau_ood) for row in rows]
    assert decisions.accept.tolist() == [reason is None for reason in decisions.reasons]
    assert decisions.reason.dtype == np.uint8


def test_a_score_equal_to_the_threshold_is_accepted() -> None:
    tau = 0.1 + 0.2
    policy = Policy(tau_id=tau, tau_ood=tau)
    below = np.nextafter(tau, -np.inf)
    assert policy.decide([tau, below, tau, below], [tau, tau, below, below]).reasons == [
        None,
        "low_id",
        "low_ood",
        "low_both",
    ]


def test_one_row_and_many_rows_decide_alike() -> None:
    rng = np.random.default_rng(0)
    s_id, s_ood, label = rng.normal(size=200), rng.normal(size=200), rng.integers(-1, 6, 200)
    s_id[::17] = np.nan
    pairs = tuple(ClassThresholds(label=k, tau_id=0.1 * k, tau_ood=-0.1 * k) for k in (0, 2, 3))
    for policy in (Policy(tau_id=0.0, tau_ood=0.2), Policy(tau_id=1.0, tau_ood=1.0, per_class=pairs)):
        together = policy.decide(s_id, s_ood, label=label)
        alone = [policy.decide(s_id[i : i + 1], s_ood[i : i + 1], label=label[i : i + 1]) for i in range(200)]
        assert together.reason.tolist() == [int(each.reason[0]) for each in alone]


def test_per_class_thresholds_judge_by_the_predicted_class() -> None:
    pairs = (ClassThresholds(label=0, tau_id=0.5, tau_ood=0.0), ClassThresholds(label=2, tau_id=OPEN, tau_ood=0.0))
    policy = Policy(tau_id=0.9, tau_ood=0.0, per_class=pairs)
    decisions = policy.decide([0.6, 0.6, 0.6, 0.6], [1.0] * 4, label=[0, 1, 2, 7])
    assert decisions.reasons == [None, "low_id", None, "low_id"]
    assert policy.thresholds(2) == (OPEN, 0.0)
    assert policy.thresholds(1) == (0.9, 0.0)
    with pytest.raises(PolicyError, match="labels"):
        policy.decide([0.6], [1.0])


def test_rows_of_unequal_number_are_refused() -> None:
    with pytest.raises(PolicyError, match="2 rows and s_ood has 1"):
        Policy(tau_id=0, tau_ood=0).decide([1.0, 2.0], [1.0])


@given(tau_id=thresholds, tau_ood=thresholds)
def test_thresholds_keep_every_bit_through_json(tau_id: float, tau_ood: float) -> None:
    policy = Policy(tau_id=tau_id, tau_ood=tau_ood)
    document = policy.to_json()
    again = Policy.from_json(document)
    for before, after in ((tau_id, again.tau_id), (tau_ood, again.tau_ood)):
        assert np.float64(before).tobytes() == np.float64(after).tobytes()
    assert again == policy
    json.loads(document, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_an_open_door_is_null_in_json() -> None:
    document = json.loads(Policy(tau_id=OPEN, tau_ood=1.5).to_json())
    assert document["tau_id"] is None
    assert document["tau_ood"] == 1.5


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("{", "Invalid JSON"),
        ("[]", "object"),
        ('{"tau_id": 1}', "tau_ood: field required"),
        ('{"tau_id": "high", "tau_ood": 1}', "'high' arrived"),
        ('{"tau_id": 1e999, "tau_ood": 1}', "finite number"),
        ('{"tau_id": NaN, "tau_ood": 1}', "finite number"),
        ('{"tau_id": 1, "tau_ood": 2, "tau": 3}', "tau: extra"),
        ('{"tau_id": 1, "tau_ood": 2, "status": "good"}', "status"),
        ('{"tau_id": 1, "tau_ood": 2, "schema_version": 9}', "schema_version 9 is unknown"),
        (
            '{"tau_id": 1, "tau_ood": 2, "per_class": [{"label": 1, "tau_id": 1, "tau_ood": 1},'
            '{"label": 1, "tau_id": 1, "tau_ood": 1}]}',
            "names a class twice",
        ),
    ],
)
def test_a_bad_document_is_refused_in_one_sentence(document: str, expected: str) -> None:
    with pytest.raises(PolicyError, match=expected) as refusal:
        Policy.from_json(document, source="p.json")
    assert str(refusal.value).startswith("p.json is not a valid policy")
    assert "\n" not in str(refusal.value)


def test_a_policy_of_another_bundle_does_not_load(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "p.json"
    Policy(tau_id=0, tau_ood=0, bundle="a" * 64).write(path)
    assert Policy.read(path, bundle="a" * 64).bundle == "a" * 64
    with pytest.raises(PolicyError, match="made for bundle aaaaaaaaaaaa"):
        Policy.read(path, bundle="b" * 64)
    with pytest.raises(PolicyError, match="cannot read"):
        Policy.read(tmp_path / "missing.json")


def test_a_policy_cannot_be_changed() -> None:
    policy = Policy(tau_id=0, tau_ood=0)
    with pytest.raises(ValueError, match="frozen"):
        policy.tau_id = 1.0  # type: ignore[misc]


def test_reason_codes_are_stable() -> None:
    assert REASONS == (None, "low_id", "low_ood", "low_both", "not_finite")


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_schema_says_that_a_door_may_be_open(mode: Any) -> None:
    schema = Policy.model_json_schema(mode=mode)
    assert schema["properties"]["tau_id"]["anyOf"] == [{"type": "number"}, {"type": "null"}]
