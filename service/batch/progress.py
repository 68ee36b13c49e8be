"""How far a job is: a bar with rate and ETA on a terminal, a plain line now and then in a pipe, or nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import click

Advance = Callable[[int], None]
_EVERY = 10.0


@contextmanager
def progress(total: int, done: int = 0, *, quiet: bool = False) -> Iterator[Advance]:
    """Yields `advance(rows)`; `done` rows were finished by an earlier run and do not count for the rate."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar(total, done) as advance:
            yield advance
    else:
        yield _Lines(total, done)


class _Lines:
    def __init__(self, total: int, done: int) -> None:
        self._total, self._done, self._began_at = total, done, done
        self._started = self._last = monotonic()

    def __call__(self, rows: int) -> None:
        self._done += rows
        now = monotonic()
        if now - self._last < _EVERY and self._done < self._total:
            return
        self._last = now
        rate = (self._done - self._began_at) / max(now - self._started, 1e-9)
        share = 100 * self._done / max(self._total, 1)
        line = f"airlock: {self._done:,} of {self._total:,} scored ({share:.0f} %), {say_rate(rate)}"
        left = (self._total - self._done) / max(rate, 1e-9)
        click.echo(line + (f", {say_seconds(left)} left" if left >= 1 else ""), err=True)


@contextmanager
def _bar(total: int, done: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as Eta
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else say_rate(task.speed))

    columns = (TextColumn("scoring"), BarColumn(), MofNCompleteColumn(), Rate(), Eta(elapsed_when_finished=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scoring", total=total, completed=done)
        yield lambda rows: bar.advance(task, rows)


def say_rate(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def say_seconds(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
