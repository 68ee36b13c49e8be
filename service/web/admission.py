"""Overload: so many requests and bytes are admitted, the rest is refused at once, and nobody waits for ever."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from service.problems import Problem, deadline_passed, overloaded


@dataclass(slots=True, eq=False)
class Ticket:
    """An admitted request: what it holds and until when."""

    admission: "Admission"
    task: "asyncio.Task[Any]"
    started: float
    seconds: float
    held: int
    reading: bool = True
    expired: bool = False

    def hold(self, total: int) -> None:
        """Account for a body that is longer than declared (or not declared at all)."""
        if total > self.held:
            extra, self.held = total - self.held, total
            self.admission.hold(extra)

    def give_up(self) -> Problem:
        """What a request past its deadline is told; who was late decides the status."""
        self.task.uncancel()
        if not self.reading:
            return deadline_passed(self.seconds)
        return Problem(
            408,
            "timeout",
            f"The body did not arrive within {self.seconds:g} s; send it faster or in smaller requests.",
            headers=((b"connection", b"close"),),
        )


class Admission:
    """Counts what is under way in this worker; `sweep` gives up what is past its deadline."""

    def __init__(self, *, queue: int, max_bytes: int, timeout: float) -> None:
        self._queue = queue
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._tickets: set[Ticket] = set()
        self.pending_bytes = 0

    @property
    def in_flight(self) -> int:
        """Requests admitted and not yet answered."""
        return len(self._tickets)

    def enter(self, declared_bytes: int) -> Ticket:
        """Admit the current task's request, or refuse it with 429."""
        if len(self._tickets) >= self._queue:
            raise overloaded(f"{self._queue} requests are under way already; send this one again later.")
        if self.pending_bytes + declared_bytes > self._max_bytes and self._tickets:
            raise overloaded(f"{self.pending_bytes:,} bytes are being worked on already; send this again later.")
        task = asyncio.current_task()
        assert task is not None  # a handler always runs in a task
        ticket = Ticket(self, task, time.monotonic(), self._timeout, declared_bytes)
        self._tickets.add(ticket)
        self.pending_bytes += declared_bytes
        return ticket

    def hold(self, extra: int) -> None:
        """More bytes arrived for an admitted request."""
        self.pending_bytes += extra
        if self.pending_bytes > self._max_bytes and len(self._tickets) > 1:
            raise overloaded(f"{self.pending_bytes:,} bytes are being worked on already; send this again later.")

    def leave(self, ticket: Ticket) -> None:
        """The request is answered or gone."""
        self._tickets.discard(ticket)
        self.pending_bytes -= ticket.held

    def sweep(self) -> None:
        """Cancel every request past its deadline; its handler turns that into an answer."""
        now = time.monotonic()
        for ticket in self._tickets:
            if not ticket.expired and now - ticket.started > ticket.seconds:
                ticket.expired = True
                ticket.task.cancel()
