"""Who waits for what: a caller has places in calls of the store that others have places in too.

Knows nothing of the order of operations, of when calls go, or of the store.
"""

import asyncio
import math
from collections.abc import Callable, Sequence

from opentelemetry.trace import Span

from ...core import Get, Operation, Outcome


class Caller:
    """One call from above: the outcomes so far, and the places that are not answered yet, by position.

    `span` is that of its waiting, where its trace is sampled.
    """

    __slots__ = ("future", "open", "outcomes", "span", "until")

    def __init__(self, count: int, until: float, future: "asyncio.Future[list[Outcome]]") -> None:
        self.until = until
        self.future = future
        self.outcomes: list[Outcome] = [None] * count
        self.span: Span | None = None
        self.open: dict[int, Place] = {}

    def waits_for(self, position: int) -> bool:
        """Whether the operation at that position is still wanted."""
        return position in self.open and not self.future.done()

    def answer(self, position: int, outcome: Outcome) -> None:
        """Say what became of the operation at that position, if that is still wanted."""
        if not self.waits_for(position):
            return
        self.outcomes[position] = outcome
        del self.open[position]
        if not self.open:
            self.future.set_result(self.outcomes)


class Place:
    """One operation of a call of the store; several callers may share that of a get.

    `leave_at` is when it wants to be under way. `call` is None until it is.
    """

    __slots__ = ("call", "leave_at", "members", "operation", "reads")

    def __init__(self, operation: Operation, leave_at: float) -> None:
        self.operation = operation
        self.reads = type(operation) is Get
        self.leave_at = leave_at
        self.call: Call | None = None
        self.members: list[tuple[Caller, int]] = []

    def add(self, caller: Caller, position: int) -> None:
        """Let a caller share the outcome."""
        self.members.append((caller, position))
        caller.open[position] = self

    def living(self) -> list[Caller]:
        """Return those who still want the outcome."""
        return [caller for caller, position in self.members if caller.waits_for(position)]

    def depart(self, call: "Call") -> list[Caller]:
        """Be under way with a call, only for those who still want the outcome; return them."""
        self.call = call
        for caller, position in self.members:
            if caller.future.done():
                caller.open.pop(position, None)
        return self.living()

    def answer(self, outcome: Outcome) -> None:
        """Say to all what became of the operation."""
        for caller, position in self.members:
            caller.answer(position, outcome)


class Call:
    """A call of the store that forms, and then is under way: `until` and `wanted` are known from then on.

    `wanted` is how many outcomes somebody waits for.
    """

    __slots__ = ("full", "leave_at", "places", "since", "size_bytes", "timer", "until", "wanted")

    def __init__(self, since: float) -> None:
        self.since = since
        self.leave_at = math.inf
        self.full = False
        self.places: list[Place] = []
        self.size_bytes = self.wanted = 0
        self.until = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def depart(self) -> list[Place]:
        """Return the places that somebody still wants: the others are not sent. Nobody can join from now on."""
        going = []
        for place in self.places:
            if living := place.depart(self):
                self.wanted += len(living)
                self.until = max(self.until, max(caller.until for caller in living))
                going.append(place)
        return going

    @property
    def is_alone(self) -> bool:
        """Whether as many outcomes are waited for as its first caller has: it waited for others in vain."""
        [(first, _), *_] = self.places[0].members
        return self.wanted == len(first.outcomes)

    def abandon(self) -> None:
        """Cancel whoever still waits: there will be no outcome."""
        for place in self.places:
            for caller in place.living():
                caller.future.cancel()


def spans(places: Sequence[Place]) -> list[Span]:
    """Return the spans of those who wait for any of these places, in the order in which they came."""
    return [*dict.fromkeys(caller.span for place in places for caller in place.living() if caller.span is not None)]


TIMER_S = 0.001
"""How exact a timer of the event loop is: what is due within that is due."""


class Deadlines:
    """Those who wait, each until its deadline."""

    def __init__(self, expire: Callable[[Caller], None]) -> None:
        self._expire = expire
        self._callers: set[Caller] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, caller: Caller) -> None:
        """See to it that `expire` is called with a caller that is still here at its deadline."""
        self._callers.add(caller)
        if self._timer is None or caller.until < self._timer.when():
            self._set(caller.until)

    def remove(self, caller: Caller) -> None:
        """Forget a caller. The timer stays: when it is over, it is set for those who wait then."""
        self._callers.discard(caller)

    def stop(self) -> None:
        """Let go of the timer if nobody waits."""
        if not self._callers:
            self._set(math.inf)

    def _set(self, until: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(until, self._look) if until < math.inf else None

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for caller in [each for each in self._callers if each.until <= now + TIMER_S]:
            self._callers.discard(caller)
            self._expire(caller)
        if self._callers:
            self._set(min(caller.until for caller in self._callers))
