"""Where requests ask the ledger: few at a time, on threads of their own, and never in anyone else's way."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from service.ledger.engine import Database, LedgerError
from service.ledger.feedback import AmbiguousDecision, ConflictingLabel, UnknownDecision
from service.ledger.handle import Ledger
from service.ledger.review import BadCursor
from service.problems import Problem, overloaded

MOST_WAITING = 64
_THREADS = 4
_ANSWERS = (UnknownDecision, AmbiguousDecision, ConflictingLabel, BadCursor)

_T = TypeVar("_T")


class Desk:
    """Runs blocking work on a worker's ledger.

    The event loop's own threads switch policies and answer scrapes: a database that hangs must not hold them.
    """

    def __init__(self, ledger: Ledger | None) -> None:
        self._ledger = ledger
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="airlock-ask")
        self._waiting = 0

    async def ask(self, work: Callable[[Database], _T]) -> _T:
        """The result of the work; a database that is away is 503, whatever the driver calls it."""
        ledger = self._ledger
        if ledger is None:
            raise Problem(404, "not-found", "The ledger is switched off (monitoring.ledger), so there is nothing here.")
        if self._waiting >= MOST_WAITING:
            raise overloaded(f"{MOST_WAITING} requests wait for the ledger already; send this one again later.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(ledger.open()))
        except _ANSWERS:
            raise
        except (LedgerError, OSError) as fault:
            raise _away() from fault
        except Exception as fault:
            if type(fault).__module__.startswith("sqlalchemy"):
                raise _away() from fault
            raise
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let go of the threads; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _away() -> Problem:
    detail = "The ledger cannot be reached now; try again later."
    return Problem(503, "not-ready", detail, headers=((b"retry-after", b"5"),))
