"""What a request may use: the time until its deadline, and the room of its response for values."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from .bounded_reads import not_read, value_bytes, without_value
from .concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces, Yielder, chunks_of
from .errors import Applied, DeadlineExceeded
from .operations import Get, Operation, Outcome, Record, Written

Result = TypeVar("Result")

Reduce: TypeAlias = Callable[[bytes], bytes]
"""Reduces the text of a value to the requested members."""

COPIED_BYTES_MAX = 2**20
"""Larger values of writes are not copied: there are at most 64 in a response, and a copy takes long."""

UNLIMITED_COUNT = 2**31

NOT_PROJECTED = DeadlineExceeded("the deadline was over before the requested fields were extracted")

THREADS_MAX = 2
"""How many threads compute at a time. The event loop may wait for each of them, and each result may be large."""

_THREADS = ThreadPoolExecutor(THREADS_MAX, "tableside-compute")


class Budget(msgspec.Struct, frozen=True, gc=False):
    """What one request may use, and the facts about it that limits need.

    `until` is the deadline, a time of `time.monotonic`. `table` is the name of the requested table. `caller` is the
    name of the caller, never a secret. It is empty if callers are not distinguished, or if a call is for several
    callers. `body_bytes` is the size of the request's body in memory. `room` is the room of the response for values,
    None if it is unlimited.
    """

    until: float = math.inf
    table: str = ""
    caller: str = ""
    body_bytes: int = 0
    room: "ValueRoom | None" = None

    def is_over(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() >= self.until

    def exceeded(self, applied: Applied = "no") -> DeadlineExceeded:
        """Return the outcome of an operation that was not finished by the deadline."""
        return DeadlineExceeded(f"table {self.table!r}: the deadline was over", applied=applied)

    def unanswered(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Return the outcomes of operations that were sent, and not answered by the deadline."""
        read, write = self.exceeded(), self.exceeded("unknown")
        return [read if isinstance(operation, Get) else write for operation in operations]

    def limited(self, until: float) -> "Budget":
        """Return the same budget with the deadline `until`, if that is earlier."""
        return replace(self, until=until) if until < self.until else self

    def timeout(self) -> asyncio.Timeout:
        """Return a context that raises TimeoutError at the deadline."""
        return asyncio.timeout_at(None if self.until == math.inf else self.until)


NO_DEADLINE = Budget()


class ValueRoom:
    """Counts the values of a batch's outcomes. The value that exceeds `bytes_max` is the last.

    `reduction` returns how to reduce values before they are counted. None counts them unchanged.
    """

    def __init__(self, bytes_max: float, reduction: Callable[[], Reduce] | None = None) -> None:
        self._left = bytes_max
        self._counted, self._counted_bytes = 0, 0
        self._reduction = reduction
        self._reduce: Reduce | None = None

    def keep(self, outcomes: Sequence[Outcome], until: float = math.inf) -> Pieces[list[Outcome]]:
        """Count the values of some outcomes, and return the outcomes to keep.

        After the time `until`, no more values are reduced: gets end as DeadlineExceeded, and writes return no value.
        """
        kept: list[Outcome] = []
        for some in chunks_of(outcomes, PIECE_OPERATIONS, PIECE_BYTES, _copied_bytes):
            late = self._reduction is not None and time.monotonic() >= until
            kept += map(_late if late else self._kept, some)
            yield
        size_bytes = value_bytes(kept)
        self._left -= size_bytes
        self._counted += len(kept) - len(not_read(kept))
        self._counted_bytes += size_bytes
        return kept

    def _kept(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Record):
            if self._reduction is None:
                return outcome
            return Record(self._reduced(outcome.value), outcome.etag, outcome.expires_ms, outcome.age_s)
        if isinstance(outcome, Written) and outcome.value is not None:
            value = outcome.value if self._reduction is None else self._reduced(outcome.value)
            return replace(outcome, value=_compact(value))
        return outcome

    def _reduced(self, value: bytes) -> bytes:
        if self._reduce is None:
            assert self._reduction is not None
            self._reduce = self._reduction()
        return self._reduce(value)

    @property
    def count_max(self) -> int:
        """How many operations to send: as many as have values that probably fit, at least one.

        Without room there is no limit, because writes then return no values.
        """
        if self.full or not self._counted_bytes:
            return UNLIMITED_COUNT
        return max(1, int(min(UNLIMITED_COUNT, self._left * self._counted / self._counted_bytes)))

    @property
    def full(self) -> bool:
        """Whether no other value fits."""
        return self._left < 0

    def fits(self, operation: Operation) -> bool:
        """Return whether to send an operation: a get only if its value may fit."""
        return not (self.full and isinstance(operation, Get))

    def reduced(self, operation: Operation) -> Operation:
        """Return the operation, a write without the request for its value if the value would not fit."""
        return without_value(operation) if self.full else operation


def _copied_bytes(outcome: Outcome) -> int:
    return len(outcome.value or b"") if isinstance(outcome, Record | Written) else 0


def _late(outcome: Outcome) -> Outcome:
    """Return the outcome without a value that was not reduced in time."""
    if isinstance(outcome, Record):
        return NOT_PROJECTED
    return replace(outcome, value=None) if isinstance(outcome, Written) else outcome


def _compact(value: bytes) -> bytes:
    """Return a copy that takes no more memory than its bytes.

    The encoder writes a value into a larger buffer and shrinks it. The memory behind the value stays unused while the
    value exists: the buffer of the next value, which may be slightly longer, does not fit.
    """
    return value if len(value) > COPIED_BYTES_MAX else bytes(memoryview(value))


async def in_pieces(work: Pieces[Result], budget: Budget = NO_DEADLINE) -> Result:
    """Run work that yields between its pieces, and let other tasks run every `SLICE_S`. Return its result.

    Raise DeadlineExceeded if it has not finished by the deadline.
    """
    yielder = Yielder()
    while True:
        try:
            next(work)
        except StopIteration as finished:
            result: Result = finished.value
            return result
        if yielder.due:
            await yielder.maybe_yield()
            if budget.is_over():
                raise budget.exceeded()


async def run_in_thread(work: Callable[[], Result], budget: Budget = NO_DEADLINE) -> Result:
    """Call a function in a thread, and return its result. At most `THREADS_MAX` run at a time.

    The interpreter takes its lock from the thread when the event loop needs it, unless the thread is in a long call of
    C. Raise DeadlineExceeded at the deadline. Work that has begun then continues, and its result is discarded.
    """
    try:
        async with budget.timeout():
            return await asyncio.get_running_loop().run_in_executor(_THREADS, work)
    except TimeoutError:
        raise budget.exceeded() from None
