"""Waiters, the shared calls that they wait for, and the slots that connect both.

A slot is one operation in a shared call. Several waiters can share the slot of a get.
"""

import asyncio
import math
from collections.abc import Sequence

from opentelemetry.trace import Span

from ...core import Get, Operation, Outcome


class Waiter:
    """One call of `Coalesce.apply`: its outcomes so far, and its unresolved slots by position.

    `span` covers the wait, if the trace is sampled.
    """

    __slots__ = ("future", "outcomes", "pending", "span", "until")

    def __init__(self, count: int, until: float, future: "asyncio.Future[list[Outcome]]") -> None:
        self.until = until
        self.future = future
        self.outcomes: list[Outcome] = [None] * count
        self.span: Span | None = None
        self.pending: dict[int, Slot] = {}

    def waits_for(self, position: int) -> bool:
        """Return whether the operation at this position has no outcome yet and the caller still waits."""
        return position in self.pending and not self.future.done()

    def resolve(self, position: int, outcome: Outcome) -> None:
        """Set the outcome at this position, unless it is set or the caller no longer waits."""
        if not self.waits_for(position):
            return
        self.outcomes[position] = outcome
        del self.pending[position]
        if not self.pending:
            self.future.set_result(self.outcomes)


class Slot:
    """One operation of a shared call, and its waiters. Only a get can have several.

    `dispatch_at` is the time when it must be sent. `call` is None until it is sent.
    """

    __slots__ = ("call", "dispatch_at", "operation", "reads", "subscribers")

    def __init__(self, operation: Operation, dispatch_at: float) -> None:
        self.operation = operation
        self.reads = type(operation) is Get
        self.dispatch_at = dispatch_at
        self.call: SharedCall | None = None
        self.subscribers: list[tuple[Waiter, int]] = []

    def add(self, waiter: Waiter, position: int) -> None:
        """Give a waiter the outcome of this slot at one of its positions."""
        self.subscribers.append((waiter, position))
        waiter.pending[position] = self

    def waiters(self) -> list[Waiter]:
        """Return the waiters that still need the outcome."""
        return [waiter for waiter, position in self.subscribers if waiter.waits_for(position)]

    def dispatch(self, call: "SharedCall") -> list[Waiter]:
        """Mark the slot as sent with a call. Drop waiters that have left, and return the others."""
        self.call = call
        for waiter, position in self.subscribers:
            if waiter.future.done():
                waiter.pending.pop(position, None)
        return self.waiters()

    def resolve(self, outcome: Outcome) -> None:
        """Give the outcome to all waiters."""
        for waiter, position in self.subscribers:
            waiter.resolve(position, outcome)


class SharedCall:
    """A call of the store: it first collects slots and is then sent.

    `until`, its deadline, and `waiting_count`, the number of outcomes that waiters need, are set when it is sent.
    """

    __slots__ = ("dispatch_at", "full", "since", "size_bytes", "slots", "timer", "until", "waiting_count")

    def __init__(self, since: float) -> None:
        self.since = since
        self.dispatch_at = math.inf
        self.full = False
        self.slots: list[Slot] = []
        self.size_bytes = self.waiting_count = 0
        self.until = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def dispatch(self) -> list[Slot]:
        """Return the slots that still have waiters. The others are not sent. No get can join from now on."""
        sent = []
        for slot in self.slots:
            if waiting := slot.dispatch(self):
                self.waiting_count += len(waiting)
                self.until = max(self.until, max(waiter.until for waiter in waiting))
                sent.append(slot)
        return sent

    @property
    def is_unshared(self) -> bool:
        """Return whether all its outcomes are for one waiter."""
        [(first, _), *_] = self.slots[0].subscribers
        return self.waiting_count == len(first.outcomes)

    def abandon(self) -> None:
        """Cancel all waiters: there will be no outcome."""
        for slot in self.slots:
            for waiter in slot.waiters():
                waiter.future.cancel()


def spans(slots: Sequence[Slot]) -> list[Span]:
    """Return the spans of the waiters of these slots, in order of arrival."""
    return [*dict.fromkeys(waiter.span for slot in slots for waiter in slot.waiters() if waiter.span is not None)]
