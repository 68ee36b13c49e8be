"""The parts of a `multipart/form-data` body that is already in memory, and small by its route's limit."""

from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from service.problems import malformed


@dataclass
class Part:
    """One form field; `filename` is None for plain text."""

    headers: Message = field(default_factory=Message)
    data: bytearray = field(default_factory=bytearray)

    @property
    def name(self) -> str:
        return self._option(b"name") or ""

    @property
    def filename(self) -> str | None:
        return self._option(b"filename")

    def _option(self, key: bytes) -> str | None:
        _, options = parse_options_header(self.headers.get("Content-Disposition", ""))
        value = options.get(key)
        return None if value is None else value.decode("utf-8", "replace")


def parse_multipart(body: bytes, content_type: bytes, *, max_parts: int) -> list[Part]:
    """The parts in the order they stand in."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise malformed("The multipart content type names no boundary.")
    collector = _Collector(max_parts)
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as fault:
        raise malformed(f"The multipart body cannot be read: {fault}.") from None
    if not collector.complete:
        raise malformed("The multipart body ends before its last boundary; send all of it.")
    return collector.parts


class _Collector:
    def __init__(self, max_parts: int) -> None:
        self.parts: list[Part] = []
        self.complete = False
        self._max_parts = max_parts
        self._name = b""
        self._value = b""

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_header_field": self._field,
            "on_header_value": self._content,
            "on_header_end": self._header,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.parts) >= self._max_parts:
            raise malformed(f"The form has more than {self._max_parts:,} parts; split it into several requests.")
        self.parts.append(Part())

    def _data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].data += data[start:end]

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _content(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header(self) -> None:
        self.parts[-1].headers[self._name.decode("latin-1")] = self._value.decode("latin-1")
        self._name = self._value = b""

    def _end(self) -> None:
        self.complete = True
