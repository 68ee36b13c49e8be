"""Ctrl-C and SIGTERM as a wish to stop at the next good place; a second one stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Which signal asked for the end, if one did."""

    def __init__(self, said: Callable[[], None]) -> None:
        self.signum: int | None = None
        self._said = said

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise KeyboardInterrupt
        self.signum = signum
        self._said()

    def requested(self) -> bool:
        return self.signum is not None


@contextmanager
def catching(said: Callable[[], None]) -> Iterator[Interrupt]:
    """Catch both signals while the block runs; `said` is called at the first. Only the main thread can."""
    interrupt = Interrupt(said)
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
