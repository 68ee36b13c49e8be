"""Bad input: every refusal is a problem with a sentence and an index, and never a 500."""

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.echo import item
from support.local import Local, problem

from models.bundle import Bundle

JSON = {"content-type": "application/json"}
NPY = {"content-type": "application/octet-stream"}
GOOD = item(1, 1)


def post(local: Local, content: bytes, headers: dict[str, str], path: str = "/v1/classify") -> Any:
    return local.request("POST", path, content=content, headers=headers)


V2 = "/v2/models/echo/infer"
V2_BODY = b'{"inputs": [{"name": "x", "shape": [1, 5], "datatype": "FP32", "data": %b}], "id": "false"}'


@pytest.mark.parametrize("entry", ["x" * 20_000, True])
@pytest.mark.parametrize("deep", [0, 900])
def test_text_and_truth_among_numbers_never_reach_numpy(
    local: Local, monkeypatch: pytest.MonkeyPatch, entry: Any, deep: int
) -> None:
    """numpy gives every entry the room of the longest text: 60 kB of JSON would take gigabytes."""
    row = b"[" * deep + orjson.dumps([entry, *[1] * 20_000]) + b"]" * deep
    monkeypatch.setattr(np, "array", lambda *_: pytest.fail("the values went to numpy"))
    refusal = problem(post(local, b'{"instances": [%b]}' % row, JSON), 422, "invalid-input")
    assert (refusal["index"], "numbers" in refusal["detail"]) == (0, True)
    refusal = problem(post(local, V2_BODY % row, JSON, V2), 422, "invalid-input")
    assert "entry 0" in refusal["detail"]


@pytest.mark.parametrize("spelling", ['"tr\\u0075e"', '"a\\"b"'])
def test_escapes_hide_no_truth_among_numbers(local: Local, spelling: str) -> None:
    for first, status in (("1", 200), ("true", 422)):
        body = V2_BODY.replace(b'"false"', spelling.encode()) % f"[{first}, 1, 1, 1, 1]".encode()
        answer = post(local, body, JSON, V2)
        assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("document", "index", "words"),
    [
        ({"instances": [GOOD, GOOD[:4]]}, 1, "shape [4]"),
        ({"instances": [GOOD, [GOOD]]}, 1, "shape [1, 5]"),
        ({"instances": [[*GOOD[:4], [1]]]}, 0, "rectangular"),
        ({"instances": [GOOD, [*GOOD[:4], "1"]]}, 1, "numbers"),
        ({"instances": [GOOD, [*GOOD[:4], None]]}, 1, "numbers"),
        ({"instances": [[True] * 5]}, 0, "numbers"),
        ({"instances": [GOOD, [True, *GOOD[1:]]], "ids": ["a", "true"]}, 1, "numbers"),
        ({"instances": [GOOD, [*GOOD[:4], 1e39]]}, 1, "finite"),
        ({"instances": [GOOD[:4]]}, None, "[4]"),
        ({"instances": GOOD}, None, "axes"),
        ({"instances": [{"a": 1}]}, 0, "numbers"),
        ({"instances": []}, None, "at least one"),
        ({"instances": {}}, None, "list"),
        ({"instances": 3}, None, "list"),
        ({}, None, "instances"),
        ([GOOD], None, "instances"),
        (None, None, "instances"),
        ({"instances": [GOOD], "instance": 1}, None, "'instance'"),
        ({"instances": [GOOD], "ids": ["a", "b"]}, None, "2 ids"),
        ({"instances": [GOOD], "ids": "a"}, None, "ids"),
        ({"instances": [GOOD, GOOD], "ids": ["a", "b c"]}, 1, "id"),
        ({"instances": [GOOD, GOOD], "ids": ["a", 7]}, 1, "id"),
        ({"instances": [GOOD, GOOD], "ids": ["a", "a"]}, None, "twice"),
    ],
)
def test_a_misfit_says_what_is_wrong_and_where(local: Local, document: Any, index: int | None, words: str) -> None:
    refusal = problem(post(local, orjson.dumps(document), JSON), 422, "invalid-input")
    assert refusal.get("index") == index
    assert words in refusal["detail"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1,2", b'{"instances": [[NaN,1,1,1,1]]}', b"\xff", b'{"instances": [[1,1,1,1,1]]} x', b"\x93NUMPY"],
)
def test_what_is_no_json_is_malformed(local: Local, body: bytes) -> None:
    assert "JSON" in problem(post(local, body, JSON), 400, "malformed")["detail"]


@pytest.mark.parametrize("returns", ["probabilities", ["nonsense"], [1], [["probabilities"]]])
def test_an_unknown_return_is_refused(local: Local, returns: Any) -> None:
    problem(local.classify([GOOD], **{"return": returns}), 422, "invalid-parameter")


@pytest.mark.parametrize("query", ["mode=", "mode=loose", "mode=strict&mode=full", "mood=strict", "%00=1"])
def test_an_unknown_query_is_refused(local: Local, query: str) -> None:
    problem(local.classify([GOOD], path=f"/v1/classify?{query}"), 422, "invalid-parameter")


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "image/png", "é"])
def test_another_content_type_is_refused_with_those_that_do(local: Local, kind: str) -> None:
    answer = local.request("POST", "/v1/classify", content=b"{}", headers={"content-type": kind.encode()})
    assert "application/json" in problem(answer, 415, "unsupported-media-type")["detail"]


def test_a_content_encoding_is_refused(local: Local) -> None:
    answer = post(local, b"{}", {**JSON, "content-encoding": "gzip"})
    assert "gzip" in problem(answer, 415, "unsupported-media-type")["detail"]


def test_too_many_instances_are_refused(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(bundle, max_instances=3)
    assert local.classify([GOOD] * 3).status_code == 200
    assert "at most 3" in problem(local.classify([GOOD] * 4), 422, "invalid-input")["detail"]
    body = npy(np.ones((4, 5), np.float32))
    assert "at most 3" in problem(post(local, body, NPY), 422, "invalid-input")["detail"]


def test_a_body_over_the_limit_is_413_however_it_is_sent(bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(bundle, max_body_bytes=1024)
    body = b'{"instances": ' + b" " * 2000 + b"[[1,1,1,1,1]]}"

    async def pieces() -> Any:
        for start in range(0, len(body), 100):
            yield body[start : start + 100]

    for content in (body, pieces()):
        answer = local.request("POST", "/v1/classify", content=content, headers=JSON)
        assert "1,024" in problem(answer, 413, "too-large")["detail"]


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


ARRAY = np.ones((2, 5), np.float32)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "numpy.save"),
        (b"\x93NUMPY", 400, "numpy.save"),
        (b"\x93NUMPY\x01\x00\xff\xff{}", 400, "cut off"),
        (npy(ARRAY)[:-1], 400, "announces"),
        (npy(ARRAY) + b"x", 400, "announces"),
        (npy(ARRAY)[:60], 400, "cut off"),
        (npy(ARRAY).replace(b"NUMPY\x01", b"NUMPY\x07"), 400, ""),
        (npy(ARRAY).replace(b"descr", b"descx"), 400, "header"),
        (npy(ARRAY).replace(b"(2, 5)", b"(-2,5)"), 422, "numbers"),
        (npy(np.array([[{"a": 1}] * 5], object)), 422, "numbers"),
        (npy(np.array([["a"] * 5])), 422, "numbers"),
        (npy(np.ones((2, 5), np.complex64)), 422, "numbers"),
        (npy(np.ones((2, 5), "M8[s]")), 422, "numbers"),
        (npy(np.ones((2, 5), [("a", "f4")])), 422, "numbers"),
        (npy(np.ones((10,), np.float32)), 422, "axes"),
        (npy(np.float32(1)), 422, "axes"),
        (npy(np.ones((2, 4), np.float32)), 422, "[4]"),
        (npy(np.ones((0, 5), np.float32)), 422, "at least one"),
        (npy(np.full((2, 5), np.nan, np.float32)), 422, "finite"),
    ],
)
def test_a_bad_npy_body(local: Local, body: bytes, status: int, words: str) -> None:
    refusal = problem(post(local, body, NPY), status, "malformed" if status == 400 else "invalid-input")
    assert words in refusal["detail"]


def png(width: int = 4, height: int = 4) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (width, height)).save(stream, "PNG")
    return stream.getvalue()


def noisy_png() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A few bytes that claim to be a picture of any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def gif() -> bytes:
    stream = io.BytesIO()
    Image.new("L", (4, 4)).save(stream, "GIF")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no PNG"),
        (b"hello", "no PNG"),
        (gif(), "no PNG"),
        (noisy_png()[:2000], "decoded"),
        (bomb(60_000, 60_000), "pixels"),
        (bomb(2**31 - 1, 2**31 - 1), "pixels"),
        (bomb(1000, 1000), "decoded"),
    ],
)
def test_a_bad_image(image_bundle: Bundle, make_local: Callable[..., Local], body: bytes, words: str) -> None:
    local = make_local(image_bundle)
    refusal = problem(post(local, body, {"content-type": "image/png"}), 422, "invalid-input")
    assert words in refusal["detail"]
    files = [("file", ("good.png", png(), "image/png")), ("file", ("bad.png", body, "image/png"))]
    assert problem(local.request("POST", "/v1/classify", files=files), 422, "invalid-input")["index"] == 1


def test_the_pixel_limit_is_a_setting(image_bundle: Bundle, make_local: Callable[..., Local]) -> None:
    local = make_local(image_bundle, max_pixels=100)
    assert post(local, png(10, 10), {"content-type": "image/png"}).status_code == 200
    refusal = problem(post(local, png(10, 11), {"content-type": "image/png"}), 422, "invalid-input")
    assert "10×11" in refusal["detail"]


FORM = "multipart/form-data; boundary=b"


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("multipart/form-data", b"", 400),
        (FORM, b"", 400),
        (FORM, b"--b\r\n", 400),
        (FORM, b"--b\r\nnonsense\r\n\r\nx\r\n--b--\r\n", 400),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nabc', 400),
        (FORM, b"--b--\r\n", 422),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\nabc\r\n--b--\r\n', 422),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="ids"\r\n\r\nabc\r\n--b--\r\n', 422),
        (FORM, b'--b\r\nContent-Disposition: form-data; name="ids"\r\n\r\n\xff\r\n--b--\r\n', 400),
    ],
)
def test_a_bad_form(
    image_bundle: Bundle, make_local: Callable[..., Local], content_type: str, body: bytes, status: int
) -> None:
    answer = post(make_local(image_bundle), body, {"content-type": content_type})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_pixels_out_of_range_are_named(image_bundle: Bundle, make_local: Callable[..., Local]) -> None:
    grey = np.zeros((2, 4, 4, 1), int)
    grey[1, 0, 0, 0] = 256
    refusal = problem(make_local(image_bundle).classify(grey.tolist()), 422, "invalid-input")
    assert refusal["index"] == 1
    refusal = problem(make_local(image_bundle).classify((grey / 2).tolist()), 422, "invalid-input")
    assert "uint8" in refusal["detail"]


@pytest.mark.parametrize(
    "path", ["/", "/v1/classify/", "/v1", "/v1/../etc/passwd", "/V1/classify", "/v1/policies/1/x", "/%00"]
)
def test_a_wrong_route_is_a_problem(local: Local, path: str) -> None:
    answer = local.request("DELETE", path)
    kind = "method-not-allowed" if path == "/" else "not-found"
    problem(answer, 405 if path == "/" else 404, kind)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("GET", "/v1/classify", "POST"),
        ("DELETE", "/v1/policies", "GET, HEAD, POST"),
        ("PATCH", "/v2/models/echo/infer", "POST"),
        ("OPTIONS", "/readyz", "GET, HEAD"),
    ],
)
def test_a_wrong_method_names_the_right_ones(local: Local, method: str, path: str, allow: str) -> None:
    answer = local.request(method, path)
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == allow


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=20,
)
requests = st.fixed_dictionaries(
    {
        "instances": json_values
        | st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=5, max_size=5))
    },
    optional={"ids": json_values, "return": json_values},
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests | json_values)
@example({"instances": [[[[[[]]]]]]})
@example({"instances": [[1] * 5], "ids": [None]})
def test_any_json_is_answered_or_refused_in_order(local: Local, document: Any) -> None:
    answer = post(local, orjson.dumps(document), JSON)
    assert answer.status_code in (200, 422), answer.text


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=300) | st.binary(max_size=40).map(lambda tail: npy(ARRAY)[:128] + tail),
    st.sampled_from([JSON, NPY]),
)
def test_any_bytes_are_answered_or_refused_in_order(local: Local, body: bytes, headers: dict[str, str]) -> None:
    assert post(local, body, headers).status_code in (200, 400, 422)


@pytest.fixture
def image_local(image_bundle: Bundle, make_local: Callable[..., Local]) -> Local:
    return make_local(image_bundle)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.integers(0, 200))
def test_any_damage_to_an_image_is_answered_or_refused(image_local: Local, noise: bytes, at: int) -> None:
    body = png()
    damaged = body[: at % len(body)] + noise + body[at % len(body) + len(noise) :]
    assert post(image_local, damaged, {"content-type": "image/png"}).status_code in (200, 422)
