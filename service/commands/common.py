"""What several commands share: JSON output and progress on a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable


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
