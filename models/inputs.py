"""What a bundle takes: a tensor, or an image whose resize and crop happen here and whose arithmetic is in the graph."""

import io
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.errors import InputError

IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")
MAX_PIXELS = 50_000_000

_RESAMPLE = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def item_shape(self) -> tuple[int | None, ...]:
        raise NotImplementedError

    @property
    def np_dtype(self) -> np.dtype[Any]:
        raise NotImplementedError

    def describe(self) -> str:
        """The input in words, for error messages and `airlock inspect`."""
        sizes = "×".join("?" if size is None else str(size) for size in self.item_shape)
        return f"{self.np_dtype} items of shape [{sizes}]"

    def example(self, n: int = 1) -> NDArray[Any]:
        """A valid batch of zeros; sizes that the model leaves open are those of the data it was built with."""
        return np.zeros((n, *(1 if size is None else size for size in self.example_shape)), self.np_dtype)

    @property
    def example_shape(self) -> tuple[int | None, ...]:
        return self.item_shape

    def validate_batch(self, x: Any) -> NDArray[Any]:
        """`x` as a batch the graph takes, or one sentence that says what arrived and what is allowed.

        Widening and float rounding are done (float64 → float32, integers → float); anything that could change
        a value's meaning (float → integer, a reshape) is refused.
        """
        array = np.asarray(x)
        self._check_shape(array)
        if array.dtype != self.np_dtype:
            array = self._cast(array)
        if array.dtype.kind == "f":
            _check_finite(array)
        return np.ascontiguousarray(array)

    def _check_shape(self, array: NDArray[Any]) -> None:
        want = self.item_shape
        if array.ndim != len(want) + 1:
            raise InputError(
                f"The model takes a batch of {self.describe()}, {len(want) + 1} axes with the batch, "
                f"but an array of shape {list(array.shape)} arrived."
            )
        if any(w is not None and w != g for w, g in zip(want, array.shape[1:], strict=True)):
            raise InputError(
                f"The model takes a batch of {self.describe()}, but items of shape {list(array.shape[1:])} arrived."
            )

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype.kind not in "fiub" or not np.can_cast(array.dtype, self.np_dtype, "same_kind"):
            raise InputError(
                f"The model takes {self.np_dtype} values, but {array.dtype} arrived; convert them before sending."
            )
        with np.errstate(over="ignore"):
            cast = array.astype(self.np_dtype)
        if array.dtype.kind in "iu" and cast.dtype.kind in "iu" and not np.array_equal(cast, array):
            limits = np.iinfo(self.np_dtype)
            raise InputError(f"A value lies outside {limits.min}…{limits.max}, the range of {self.np_dtype}.")
        return cast


class TensorInput(_Spec):
    """A plain tensor; sizes that the model leaves open are null."""

    kind: Literal["tensor"] = "tensor"
    dtype: Literal["float16", "float32", "float64", "uint8", "int8", "int32", "int64"] = "float32"
    shape: tuple[int | None, ...]
    seen: tuple[int, ...] | None = Field(None, description="an item's sizes in the fit data, where some are open")

    @property
    def example_shape(self) -> tuple[int | None, ...]:
        return self.seen or self.shape

    @property
    def item_shape(self) -> tuple[int | None, ...]:
        return self.shape

    @property
    def np_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)


class ImageInput(_Spec):
    """An image of uint8 pixels [height, width, channels].

    A file is decoded, its shorter side resized to `resize` (null: squeezed straight to height × width) and the
    centre cropped. `(pixel · scale − mean) / std` and the move to the model's layout are nodes of the graph.
    """

    kind: Literal["image"] = "image"
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    channels: Literal[1, 3] = 3
    resize: int | None = Field(None, ge=1)
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    scale: float = Field(1 / 255, gt=0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    @model_validator(mode="after")
    def _consistent(self) -> "ImageInput":
        for name in ("mean", "std"):
            values = getattr(self, name)
            if len(values) not in (1, self.channels):
                raise ValueError(f"{name} has {len(values)} values; give 1 or {self.channels}, one a channel")
        if min(self.std) <= 0:
            raise ValueError(f"std has a value {min(self.std)}; every one must be above 0")
        if self.resize is not None and self.resize < max(self.height, self.width):
            raise ValueError(f"resize={self.resize} is smaller than the crop {self.height}×{self.width}")
        return self

    @property
    def item_shape(self) -> tuple[int | None, ...]:
        return (self.height, self.width, self.channels)

    @property
    def np_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    def decode(self, data: bytes, *, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
        """The pixels [H, W, C] of an encoded PNG, JPEG or WebP file."""
        try:
            with Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
                width, height = image.size
                if width * height > max_pixels:
                    raise InputError(
                        f"An image of {width}×{height} pixels arrived; at most {max_pixels:,} pixels are allowed, "
                        "so shrink it before sending."
                    )
                return self._prepare(image, max_pixels)
        except InputError:
            raise
        except UnidentifiedImageError:
            raise InputError(
                f"{len(data)} bytes arrived that are no {', '.join(IMAGE_FORMATS)} image; send one of these."
            ) from None
        except Exception as fault:  # Pillow's decoders raise many kinds for damaged files
            raise InputError(f"The image cannot be decoded ({fault}); send a complete file.") from fault

    def _prepare(self, image: Image.Image, max_pixels: int) -> NDArray[np.uint8]:
        if image.mode in ("I;16", "I", "F"):
            raise InputError(f"An image of mode {image.mode} arrived; 8-bit grey or colour images are allowed.")
        image = image.convert("L" if self.channels == 1 else "RGB")
        resample = _RESAMPLE[self.interpolation]
        if self.resize is None:
            if image.size != (self.width, self.height):
                image = image.resize((self.width, self.height), resample)
        else:
            size = self._resized(image.size, max_pixels)
            if image.size != size:
                image = image.resize(size, resample)
            left, top = (image.width - self.width) // 2, (image.height - self.height) // 2
            image = image.crop((left, top, left + self.width, top + self.height))
        return np.asarray(image, np.uint8).reshape(self.height, self.width, self.channels)

    def _resized(self, size: tuple[int, int], max_pixels: int) -> tuple[int, int]:
        """The size with a shorter side of `resize`, the longer one rounded down as torchvision does.

        A strip of one pixel by thousands is a few bytes long and would grow to gigabytes here.
        """
        assert self.resize is not None
        width, height = (self.resize * side // min(size) for side in size)
        allowed = max(max_pixels, 16 * self.resize**2)  # small pictures of ordinary shape always fit
        if width * height > allowed:
            raise InputError(
                f"An image of {size[0]}×{size[1]} pixels arrived, which becomes {width}×{height} when its shorter side "
                f"is resized to {self.resize}; at most {allowed:,} pixels are allowed, so crop it before sending."
            )
        return width, height


InputSpec = Annotated[TensorInput | ImageInput, Field(discriminator="kind")]


def _check_finite(array: NDArray[Any]) -> None:
    if np.isfinite(array).all():
        return
    index = int(np.argwhere(~np.isfinite(array))[0][0])
    raise InputError(
        f"Item {index} holds a value that is not finite (NaN or infinity); only finite numbers are allowed.",
        index,
    )
