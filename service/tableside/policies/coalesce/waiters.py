"""Who waits for what: a waiter has slots in calls of the store that others have slots in too.

Knows nothing of the order of operations, of when calls go, or of the store.
"""

import asyncio
import math
from collections.abc import Callable, Sequence

from opentelemetry.trace import Span

from ...core import Get, Operation, Outcome


class Waiter:
    """One call from above: the outcomes so far, and the slots that are not answered yet, by position.

    `span` is that of its waiting, where its trace is sampled.
    """

    __slots__ = ("future", "outcomes", "pending", "span", "until")

    def __init__(self, count: int, until: float, future: "asyncio.Future[list[Outcome]]") -> None:
        self.until = until
        self.future = future
        self.outcomes: list[Outcome] = [None] * count
        self.span: Span | None = None
        self.pending: dict[int, Slot] = {}

    def waits_for(self, position: int) -> bool:
        """Whether the operation at that position is still wanted."""
        return position in self.pending and not self.future.done()

    def answer(self, position: int, outcome: Outcome) -> None:
        """Say what became of the operation at that position, if that is still wanted."""
        if not self.waits_for(position):
            return
        self.outcomes[position] = outcome
        del self.pending[position]
        if not self.pending:
            self.future.set_result(self.outcomes)


class Slot:
    """One operation of a call of the store; several waiters may share that of a get.

    `dispatch_at` is when it wants to be under way. `call` is None until it is.
    """

    __slots__ = ("call", "dispatch_at", "operation", "reads", "subscribers")

    def __init__(self, operation: Operation, dispatch_at: float) -> None:
        self.operation = operation
        self.reads = type(operation) is Get
        self.dispatch_at = dispatch_at
        self.call: SharedCall | None = None
        self.subscribers: list[tuple[Waiter, int]] = []

    def add(self, waiter: Waiter, position: int) -> None:
        """Let a waiter share the outcome."""
        self.subscribers.append((waiter, position))
        waiter.pending[position] = self

    def waiters(self) -> list[Waiter]:
        """Return those who still want the outcome."""
        return [waiter for waiter, position in self.subscribers if waiter.waits_for(position)]

    def dispatch(self, call: "SharedCall") -> list[Waiter]:
        """Be under way with a call, only for those who still want the outcome; return them."""
        self.call = call
        for waiter, position in self.subscribers:
            if waiter.future.done():
                waiter.pending.pop(position, None)
        return self.waiters()

    def answer(self, outcome: Outcome) -> None:
        """Say to all what became of the operation."""
        for waiter, position in self.subscribers:
            waiter.answer(position, outcome)


class SharedCall:
    """A call of the store that forms, and then is under way: `until` and `waiting_count` are known from then on.

    `waiting_count` is how many outcomes somebody waits for.
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
        """Return the slots that somebody still wants: the others are not sent. Nobody can join from now on."""
        going = []
        for slot in self.slots:
            if waiting := slot.dispatch(self):
                self.waiting_count += len(waiting)
                self.until = max(self.until, max(waiter.until for waiter in waiting))
                going.append(slot)
        return going

    @property
    def is_unshared(self) -> bool:
        """Whether as many outcomes are waited for as its first waiter has: it waited for others in vain."""
        [(first, _), *_] = self.slots[0].subscribers
        return self.waiting_count == len(first.outcomes)

    def abandon(self) -> None:
        """Cancel whoever still waits: there will be no outcome."""
        for slot in self.slots:
            for waiter in slot.waiters():
                waiter.future.cancel()


def spans(slots: Sequence[Slot]) -> list[Span]:
    """Return the spans of those who wait for any of these slots, in the order in which they came."""
    return [*dict.fromkeys(waiter.span for slot in slots for waiter in slot.waiters() if waiter.span is not None)]


TIMER_RESOLUTION_S = 0.001
"""How exact a timer of the event loop is: what is due within that is due."""


class WaiterDeadlines:
    """Those who wait, each until its deadline."""

    def __init__(self, expire: Callable[[Waiter], None]) -> None:
        self._expire = expire
        self._waiters: set[Waiter] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, waiter: Waiter) -> None:
        """See to it that `expire` is called with a waiter that is still here at its deadline."""
        self._waiters.add(waiter)
        if self._timer is None or waiter.until < self._timer.when():
            self._set(waiter.until)

    def remove(self, waiter: Waiter) -> None:
        """Forget a waiter. The timer stays: when it is over, it is set for those who wait then."""
        self._waiters.discard(waiter)

    def stop(self) -> None:
        """Let go of the timer if nobody waits."""
        if not self._waiters:
            self._set(math.inf)

    def _set(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(until, self._look) if until < math.inf else None

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for waiter in [each for each in self._waiters if each.until <= now + TIMER_RESOLUTION_S]:
            self._waiters.discard(waiter)
            self._expire(waiter)
        if self._waiters:
            self._set(min(waiter.until for waiter in self._waiters))
