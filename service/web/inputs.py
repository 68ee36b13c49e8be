"""What a native request holds: a validated batch, the caller's ids and what is to be returned besides the decision."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.errors import InputError
from models.inputs import ImageInput
from service.problems import Problem, invalid_input, invalid_parameter, malformed
from service.web.arrays import Spec, check_count, from_lists, from_npy, numbers_only
from service.web.multipart import Part, parse_multipart
from service.web.router import JSON, Request, parse_json, unsupported

NPY = "application/octet-stream"
FORM = "multipart/form-data"
IMAGES = ("image/png", "image/jpeg", "image/webp")
RETURNS = ("probabilities", "shadow")

_ITEM_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_KEYS = frozenset({"instances", "ids", "return"})


class Inputs(NamedTuple):
    """A request, read and checked."""

    x: NDArray[Any]
    ids: list[str] | None
    returns: frozenset[str]


class Reader:
    """Reads native requests for one bundle."""

    def __init__(self, spec: Spec, *, max_instances: int, max_pixels: int) -> None:
        self._spec = spec
        self._max_instances = max_instances
        self._max_pixels = max_pixels
        # One decoder at a time: a picture may unfold to a hundred times its bytes.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="airlock-decode")

    @property
    def content_types(self) -> tuple[str, ...]:
        """What the bundle can be sent."""
        return (JSON, NPY, FORM, *IMAGES) if isinstance(self._spec, ImageInput) else (JSON, NPY)

    async def read(self, request: Request) -> Inputs:
        """The request's batch; any misfit is a problem that says which item and why."""
        kind = request.content_type
        if kind == JSON:
            text = await request.body()
            return self.from_document(parse_json(text), text)
        if kind not in self.content_types:
            raise unsupported(kind, self.content_types)
        body = await request.body()
        if kind == NPY:
            return Inputs(from_npy(body, self._spec, self._max_instances), None, frozenset())
        if kind == FORM:
            return await self._form(body, request.headers[b"content-type"])
        return Inputs(await self._pixels([body]), None, frozenset())

    def close(self) -> None:
        """Let go of the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def from_document(self, document: Any, text: bytes = b"") -> Inputs:
        """A parsed JSON body, checked; the text it was parsed from saves looking at every number."""
        if not isinstance(document, dict) or "instances" not in document:
            raise invalid_input('The body is a JSON object with a list "instances", as in {"instances": [[0.1, 0.2]]}.')
        if not document.keys() <= _KEYS:
            unknown = sorted(document.keys() - _KEYS)[0]
            raise invalid_input(f"The key {unknown[:40]!r} is unknown; known are instances, ids and return.")
        instances = document["instances"]
        if not isinstance(instances, list):
            raise invalid_input('"instances" is not a list; give one entry an input, also when there is one only.')
        check_count(len(instances), self._max_instances)
        rest = document | {"instances": None}
        return Inputs(
            from_lists(instances, self._spec, trusted=numbers_only(text, rest)),
            check_ids(document["ids"], len(instances)) if "ids" in document else None,
            check_returns(document["return"]) if "return" in document else frozenset(),
        )

    async def _form(self, body: bytes, content_type: bytes) -> Inputs:
        parts = parse_multipart(body, content_type, max_parts=2 * self._max_instances + len(RETURNS))
        files, ids, returns = _sorted_parts(parts)
        check_count(len(files), self._max_instances)
        checked = check_ids(ids, len(files)) if ids else None
        return Inputs(await self._pixels(files), checked, check_returns(returns))

    async def _pixels(self, files: list[bytes]) -> NDArray[np.uint8]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._decode, files)

    def _decode(self, files: list[bytes]) -> NDArray[np.uint8]:
        spec = self._spec
        assert isinstance(spec, ImageInput)  # other bundles take no image types
        images = np.empty((len(files), spec.height, spec.width, spec.channels), np.uint8)
        for index, data in enumerate(files):
            try:
                images[index] = spec.decode(data, max_pixels=self._max_pixels)
            except InputError as refusal:
                raise InputError(str(refusal), index) from None
        return images


def check_ids(ids: Any, n: int) -> list[str]:
    """The caller's ids, one an instance, well formed and distinct."""
    if not isinstance(ids, list) or len(ids) != n:
        arrived = f"{len(ids)} ids" if isinstance(ids, list) else "something else"
        raise invalid_input(f'"ids" is a list with one id an instance; {arrived} arrived for {n} instances.')
    for index, item in enumerate(ids):
        if not isinstance(item, str) or not _ITEM_ID.fullmatch(item):
            raise invalid_input(
                f"The id of item {index} is not 1 to 128 letters, digits or any of . _ : / -.", index=index
            )
    if len(set(ids)) != n:
        raise invalid_input("An id stands twice; give every instance its own.")
    return ids


def check_returns(returns: Any) -> frozenset[str]:
    """What the caller wants besides the decision."""
    if not isinstance(returns, list) or not all(isinstance(item, str) and item in RETURNS for item in returns):
        raise invalid_parameter(f'"return" is a list out of {", ".join(RETURNS)}.')
    return frozenset(returns)


def _sorted_parts(parts: list[Part]) -> tuple[list[bytes], list[str], list[str]]:
    files: list[bytes] = []
    fields: dict[str, list[str]] = {"ids": [], "return": []}
    for part in parts:
        if part.filename is not None:
            files.append(bytes(part.data))
        elif part.name in fields:
            fields[part.name].append(_text(part))
        else:
            raise _unknown_field(part.name)
    return files, fields["ids"], fields["return"]


def _text(part: Part) -> str:
    try:
        return part.data.decode()
    except UnicodeDecodeError:
        raise malformed(f"The form field {part.name!r} is not UTF-8 text.") from None


def _unknown_field(name: str) -> Problem:
    return invalid_parameter(f"The form field {name[:40]!r} is unknown; send files, and optionally ids and return.")
