"""What a bundle takes: strict about meaning, lenient about width, safe against hostile files."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from pydantic import ValidationError

from models.errors import InputError
from models.inputs import ImageInput, TensorInput

FLOATS = TensorInput(dtype="float32", shape=(2, None))
PIXELS = ImageInput(height=4, width=6, channels=3)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@given(
    hnp.arrays(
        np.float32, st.tuples(st.integers(0, 5), st.just(2), st.integers(0, 4)), elements=st.floats(-1e6, 1e6, width=32)
    )
)
def test_a_right_batch_passes_unchanged(x: np.ndarray) -> None:
    got = FLOATS.validate_batch(x)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize(
    ("spec", "x", "words"),
    [
        (FLOATS, np.zeros((3, 2)), ["[2×?]", "[3, 2]"]),
        (FLOATS, np.zeros((3, 5, 1)), ["[2×?]", "[5, 1]"]),
        (FLOATS, np.zeros((1, 2, 1), complex), ["float32", "complex128"]),
        (FLOATS, np.array([[["a"], ["b"]]]), ["float32", "<U1"]),
        (PIXELS, np.zeros((1, 4, 6, 3), np.float32), ["uint8", "float32"]),
        (PIXELS, np.full((1, 4, 6, 3), 256, np.int64), ["uint8", "int64"]),
        (TensorInput(dtype="int32", shape=(1,)), np.full((1, 1), 2**40), ["int32"]),
    ],
)
def test_a_wrong_batch_is_named(spec: TensorInput, x: np.ndarray, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        spec.validate_batch(x)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_a_value_that_is_not_finite_names_its_item(bad: float) -> None:
    x = np.zeros((4, 2, 3))
    x[2, 1, 0] = bad
    with pytest.raises(InputError, match="Item 2") as caught:
        FLOATS.validate_batch(x)
    assert caught.value.index == 2


def test_float64_and_integers_become_the_models_floats() -> None:
    assert FLOATS.validate_batch(np.ones((1, 2, 2))).dtype == np.float32
    assert FLOATS.validate_batch(np.ones((1, 2, 2), np.int64)).dtype == np.float32


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_an_image_of_the_right_size_keeps_its_pixels(kind: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    options = {"lossless": True} if kind == "WEBP" else {}
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    np.testing.assert_array_equal(PIXELS.decode(buffer.getvalue()), pixels)


def test_resize_takes_the_shorter_side_and_crops_the_centre() -> None:
    image = Image.new("L", (30, 10), 0)
    image.paste(200, (10, 0, 20, 10))
    spec = ImageInput(height=5, width=5, channels=1, resize=5, interpolation="nearest")
    assert spec.decode(encoded(image)).tolist() == [[[200]] * 5] * 5


def test_palette_and_alpha_images_are_converted() -> None:
    assert PIXELS.decode(encoded(Image.new("P", (6, 4)))).shape == (4, 6, 3)
    assert PIXELS.decode(encoded(Image.new("RGBA", (6, 4)))).shape == (4, 6, 3)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (b"plain text", "no PNG, JPEG, WEBP image"),
        (encoded(Image.effect_noise((60, 40), 50))[:-99], "cannot be decoded"),
        (encoded(Image.new("RGB", (60, 40)), "JPEG")[:200], "cannot be decoded"),
        (encoded(Image.new("RGB", (6, 4)), "GIF"), "no PNG, JPEG, WEBP image"),
        (encoded(Image.new("I;16", (6, 4))), "mode I;16"),
    ],
)
def test_a_bad_file_is_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        PIXELS.decode(data)


def test_a_bomb_is_refused_before_it_is_decoded() -> None:
    bomb = encoded(Image.new("L", (4000, 4000)))
    assert len(bomb) < 100_000
    with pytest.raises(InputError, match="4000×4000"):
        PIXELS.decode(bomb, max_pixels=1_000_000)


@pytest.mark.parametrize(
    "wrong",
    [{"std": (0.0,)}, {"mean": (0.1, 0.2)}, {"resize": 3}, {"height": 0}, {"channels": 2}, {"colour": "RGB"}],
)
def test_an_impossible_image_specification_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ImageInput(**{"height": 4, "width": 6, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(1, 6000), (6000, 1)])
def test_a_strip_that_resizing_would_blow_up_is_refused(size: tuple[int, int]) -> None:
    strip = encoded(Image.new("L", size))
    assert len(strip) < 200
    spec = ImageInput(height=224, width=224, resize=256)
    with pytest.raises(InputError, match=r"becomes (256×1536000|1536000×256) when .* at most 50,000,000 pixels"):
        spec.decode(strip)
    assert spec.decode(encoded(Image.new("L", (64, 64))), max_pixels=5000).shape == (224, 224, 3)


def test_the_longer_side_is_rounded_down_and_nothing_is_squeezed() -> None:
    spec = ImageInput(height=2, width=2, channels=1, resize=256)
    assert spec._resized((640, 427), 10**8) == (383, 256)
    assert spec._resized((427, 640), 10**8) == (256, 383)
    assert spec._resized((500, 256), 10**8) == (500, 256)


@pytest.mark.parametrize("size", [(1, 4000), (4000, 1)])
def test_a_strip_is_taken_where_it_does_not_grow(size: tuple[int, int]) -> None:
    assert PIXELS.decode(encoded(Image.new("RGB", size))).shape == (4, 6, 3)
    resized = ImageInput(height=4, width=6, channels=3, resize=256)
    assert resized.decode(encoded(Image.new("RGB", (2, 30))), max_pixels=100).shape == (4, 6, 3)
