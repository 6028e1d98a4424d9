"""A shared call, the operations in it, and the callers that wait for their outcomes."""

import asyncio
import math
from collections.abc import Sequence

from opentelemetry.trace import Span

from ...core import Get, Key, Operation, Outcome


class Slot:
    """One operation, and its callers. Only a get can have several.

    `dispatch_at` is the time when it must be sent. `call` is None until it is sent.
    """

    __slots__ = ("call", "callers", "dispatch_at", "operation", "reads")

    def __init__(self, operation: Operation, dispatch_at: float) -> None:
        self.operation = operation
        self.reads = type(operation) is Get
        self.dispatch_at = dispatch_at
        self.call: SharedCall | None = None
        self.callers: list[Caller] = []


class Caller:
    """A caller that waits for the outcome of one operation.

    `count` is the number of operations that it sent together. `span` covers its wait, if the trace is sampled. `timed`
    means that a timer ends its wait at its deadline `until`.
    """

    __slots__ = ("count", "future", "slot", "span", "timed", "until")

    def __init__(
        self, slot: Slot, until: float, future: "asyncio.Future[Outcome]", count: int, span: Span | None
    ) -> None:
        self.slot = slot
        self.until = until
        self.future = future
        self.count = count
        self.span = span
        self.timed = False
        slot.callers.append(self)


class SharedCall:
    """A call of the store: it first collects operations and is then sent.

    `until`, its deadline, and `waiting`, the number of callers without an outcome, are set when it is sent.
    """

    __slots__ = ("dispatch_at", "full", "since", "size_bytes", "slots", "timer", "until", "waiting")

    def __init__(self, since: float) -> None:
        self.since = since
        self.dispatch_at = math.inf
        self.full = False
        self.slots: dict[Key, Slot] = {}
        self.size_bytes = self.waiting = 0
        self.until = -math.inf
        self.timer: asyncio.TimerHandle | None = None

    def start(self) -> list[Caller]:
        """Drop the operations without a caller, and return the remaining callers. No get can join from now on."""
        waiting = []
        for slot in self.slots.values():
            slot.call = self
            slot.callers = [caller for caller in slot.callers if not caller.future.done()]
            waiting += slot.callers
        self.waiting = len(waiting)
        self.until = max([caller.until for caller in waiting], default=self.until)
        return waiting

    def resolve(self, outcomes: Sequence[Outcome]) -> None:
        """Give the outcome of each operation that has callers to all of them."""
        sent = [slot for slot in self.slots.values() if slot.callers]
        for slot, outcome in zip(sent, outcomes, strict=True):
            for caller in slot.callers:
                if not caller.future.done():
                    caller.future.set_result(outcome)

    def abandon(self) -> None:
        """Cancel all callers: there will be no outcome."""
        for slot in self.slots.values():
            for caller in slot.callers:
                caller.future.cancel()
