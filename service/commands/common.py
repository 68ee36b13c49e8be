"""What several commands share: JSON output, progress on a terminal, the image option."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from models.inputs import ImageInput


def emit_json(document: Any) -> None:
    """Print one JSON document to stdout; NaN and infinities are never written."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    click.echo(orjson.dumps(document, option=options).decode())


@contextmanager
def progress(description: str, total: int | None, *, quiet: bool = False) -> "Iterator[Callable[[int], None]]":
    """A progress bar on a terminal, nothing in a pipe; yields `advance(n)`."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda n: bar.advance(task, n)


def image_option(text: str | None) -> "ImageInput | None":
    """The `--image` option: a JSON object, or a file with one."""
    from pydantic import ValidationError

    from models.errors import InputError
    from models.inputs import ImageInput

    if text is None:
        return None
    try:
        document = text if text.lstrip().startswith("{") else Path(text).read_text()
        return ImageInput.model_validate({"kind": "image", **json.loads(document)})
    except OSError as fault:
        raise InputError(f"--image names {text}, which cannot be read: {fault.strerror}.") from None
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the image"
        raise InputError(f"--image is not valid: {where}: {first['msg']}, got {first['input']!r}.") from None
    except ValueError as fault:
        raise InputError(f"--image takes a JSON object or a file with one; this is no JSON: {fault}.") from None
