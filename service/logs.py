"""Logs to stderr, as text or one JSON object a line; our format for our servers' lines too."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_QUIET = ("bentoml", "circus", "uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio")


class JsonFormatter(logging.Formatter):
    """One JSON object a line; `extra` fields stand beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "pid": record.process,
        }
        document.update({key: value for key, value in record.__dict__.items() if key not in _STANDARD})
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(document, default=str).decode()


class TextFormatter(logging.Formatter):
    """A line for people; line breaks in a message are shown, not obeyed."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s[%(process)d] %(message)s", "%Y-%m-%dT%H:%M:%S%z")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without the traceback, which follows it."""
        return super().formatMessage(record).replace("\n", "\\n").replace("\r", "\\r")


def configure(log_format: Literal["text", "json"], level: str) -> None:
    """Route every logger through one handler; other people's loggers speak from warnings on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    for name in _QUIET:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    # uvicorn formats an access line for every request as soon as any handler could take it.
    logging.getLogger("uvicorn.access").propagate = False
    logging.getLogger("airlock").setLevel(level.upper())
