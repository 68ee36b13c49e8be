"""The native API: what goes in, what comes out, in every format a bundle takes."""

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.echo import WIDTH, activate, item, save_echo_bundle
from support.local import Local, problem

from models.bundle import Bundle
from models.inputs import TensorInput
from service.schemas import ClassifyResponse

NPY = {"content-type": "application/octet-stream"}


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()


def png(value: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(value).save(stream, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return stream.getvalue()


def pixels(s_id: int, s_ood: int) -> np.ndarray:
    array = np.zeros((4, 4), np.uint8)
    array[0, 0], array[0, 1] = s_id, s_ood
    return array


def test_answers_with_decision_reason_label_scores_and_thresholds(local: Local) -> None:
    instances = [item(0.75, 0.75, 1), item(0.25, 0.75, 2), item(0.75, 0.25), item(0.25, 0.25)]
    answer = local.classify(instances, ids=["a", "b", "c", "d"])
    assert answer.status_code == 200
    document = answer.json()
    ClassifyResponse.model_validate(document)
    assert document["model"] == "echo:1"
    assert document["policy"] == 1
    assert document["request_id"] == answer.headers["x-request-id"]
    assert [p["decision"] for p in document["predictions"]] == ["accept", "reject", "reject", "reject"]
    assert [p["reason"] for p in document["predictions"]] == [None, "low_id", "low_ood", "low_both"]
    assert document["predictions"][1] == {
        "id": "b",
        "decision": "reject",
        "reason": "low_id",
        "label": 2,
        "class": "fish",
        "s_id": 0.25,
        "s_ood": 0.75,
        "tau_id": 0.5,
        "tau_ood": 0.5,
    }


def test_a_score_equal_to_its_threshold_passes(local: Local) -> None:
    assert local.classify([item(0.5, 0.5)]).json()["predictions"][0]["decision"] == "accept"


def test_ids_are_made_from_the_request_id_when_none_are_given(local: Local) -> None:
    answer = local.request(
        "POST", "/v1/classify", json={"instances": [item(1, 1)] * 2}, headers={"X-Request-ID": "order-17"}
    )
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "order-17"
    assert [p["id"] for p in answer.json()["predictions"]] == ["order-17-0", "order-17-1"]


@pytest.mark.parametrize("given_id", ["a b", "x" * 129, "é", "", "a\tb"])
def test_a_malformed_request_id_is_replaced(local: Local, given_id: str) -> None:
    answer = local.request(
        "POST", "/v1/classify", json={"instances": [item(1, 1)]}, headers={"X-Request-ID": given_id.encode()}
    )
    assert len(answer.json()["request_id"]) == 32


def test_strict_mode_drops_the_label_of_rejected_items_only(local: Local) -> None:
    answer = local.classify(
        [item(1, 1, 1), item(0, 1, 1)], path="/v1/classify?mode=strict", **{"return": ["probabilities"]}
    )
    accepted, rejected = answer.json()["predictions"]
    assert accepted["label"] == 1
    assert len(accepted["probabilities"]) == 3
    assert rejected["reason"] == "low_id"
    assert not {"label", "class", "probabilities"} & rejected.keys()
    ClassifyResponse.model_validate(answer.json())


def test_probabilities_come_on_request(local: Local) -> None:
    plain = local.classify([item(1, 1)]).json()["predictions"][0]
    asked = local.classify([item(1, 1)], **{"return": ["probabilities"]}).json()["predictions"][0]
    assert "probabilities" not in plain
    expected = np.exp([1, 0, 0]) / np.exp([1, 0, 0]).sum()
    np.testing.assert_allclose(asked["probabilities"], expected, rtol=1e-6)


def test_an_open_door_has_a_null_threshold(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    activate(bundle, tau_id=-np.inf, tau_ood=0.5)
    prediction = make_local(bundle).classify([item(-1e30, 0.5)]).json()["predictions"][0]
    assert prediction["tau_id"] is None
    assert prediction["decision"] == "accept"


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2", "<i4", "|u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_bodies_give_what_json_gives(local: Local, dtype: str, order: Any) -> None:
    x = np.array([item(1, 0), item(0, 1), item(1, 1, 2)], order=order).astype(dtype)
    answer = local.request("POST", "/v1/classify", content=npy(np.asarray(x, order=order)), headers=NPY)
    same = local.classify(x.tolist())
    assert answer.status_code == 200, answer.text
    keys = ("decision", "label", "s_id", "s_ood")
    for one, other in zip(answer.json()["predictions"], same.json()["predictions"], strict=True):
        assert [one[key] for key in keys] == [other[key] for key in keys]


@pytest.mark.parametrize(("kind", "content_type"), [("PNG", "image/png"), ("WEBP", "image/webp")])
def test_an_image_body(image_bundle: Bundle, make_local: Callable[..., Local], kind: str, content_type: str) -> None:
    local = make_local(image_bundle)
    answer = local.request(
        "POST", "/v1/classify", content=png(pixels(150, 99), kind), headers={"content-type": content_type}
    )
    prediction = answer.json()["predictions"][0]
    assert (prediction["s_id"], prediction["s_ood"], prediction["reason"]) == (150, 99, "low_ood")


def test_a_jpeg_is_taken(image_bundle: Bundle, make_local: Callable[..., Local]) -> None:
    body = png(np.full((4, 4), 200, np.uint8), "JPEG")
    answer = make_local(image_bundle).request(
        "POST", "/v1/classify", content=body, headers={"content-type": "image/jpeg"}
    )
    assert answer.json()["predictions"][0]["decision"] == "accept"


def test_a_form_with_several_images_keeps_their_order(image_bundle: Bundle, make_local: Callable[..., Local]) -> None:
    values = [(120, 130), (10, 200), (200, 10), (5, 6)]
    files = [("file", (f"{i}.png", png(pixels(*v)), "image/png")) for i, v in enumerate(values)]
    data = {"ids": ["w", "x", "y", "z"], "return": "probabilities"}
    answer = make_local(image_bundle).request("POST", "/v1/classify", files=files, data=data)
    predictions = answer.json()["predictions"]
    assert [(p["s_id"], p["s_ood"]) for p in predictions] == values
    assert [p["id"] for p in predictions] == ["w", "x", "y", "z"]
    assert all(len(p["probabilities"]) == 3 for p in predictions)


def test_pixels_as_json_lists(image_bundle: Bundle, make_local: Callable[..., Local]) -> None:
    answer = make_local(image_bundle).classify([pixels(120, 130)[..., None].tolist()])
    assert answer.json()["predictions"][0]["decision"] == "accept"


scores = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(scores, scores, st.integers(0, 2)), min_size=1, max_size=40))
def test_a_batch_is_decided_as_its_items_one_by_one(local: Local, values: list[tuple[float, float, int]]) -> None:
    instances = [item(*value) for value in values]
    together = local.classify(instances).json()["predictions"]
    apart = [local.classify([one]).json()["predictions"][0] for one in instances]
    for one, other in zip(together, apart, strict=True):
        assert {**one, "id": None} == {**other, "id": None}


def test_it_decides_nothing_and_is_not_ready_until_a_policy_is_active(
    tmp_path: Path, make_local: Callable[..., Local]
) -> None:
    bundle = save_echo_bundle(tmp_path / "fresh", TensorInput(shape=(WIDTH,)))
    local = make_local(bundle)
    for answer in (local.classify([item(1, 1)]), local.get("/readyz"), local.get("/v2/health/ready")):
        assert "policy" in problem(answer, 503, "not-ready")["detail"]
        assert answer.headers["retry-after"]
    assert local.get("/livez").status_code == 200
    activate(bundle)
    local.run(asyncio.sleep(0.6))
    assert local.get("/readyz").status_code == 200
    assert local.classify([item(1, 1)]).json()["policy"] == 1
