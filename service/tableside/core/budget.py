"""What a call may use: the time until its deadline, the bytes that it reads, and the room of its response for values.

A store that does not know the size of records before it has read them uses `BoundedReads`. A call first asks for all
records and stops at a limit of bytes. For some time afterwards, calls ask for as many records as probably fit.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from .batch import Results
from .concurrency import PIECE_BYTES, PIECE_OPERATIONS, Pieces, Yielder, chunks_of
from .errors import Applied, DeadlineExceeded, TableError, TooLarge
from .operations import Get, Operation, Outcome, Put, Record, Update, Written

Item = TypeVar("Item")
Result = TypeVar("Result")

READ_BYTES_MAX = 2**24
"""After so many bytes of values, a call of a store reads no more records. At least one is read."""

UPDATE_BYTES_MAX = READ_BYTES_MAX // 4
"""For records that are read to update them. Such a record is copied about 20 times, for example into the request."""

LARGE_RECORDS_S = 1.0
"""After a call has exceeded its byte limit, for how long later calls limit the number of records that they request."""


class NotRead(TooLarge):
    """An operation that a store has not attempted, because it had already returned `READ_BYTES_MAX`.

    `Table` sends the operation again while the response has room for another value.
    """


NOT_READ = NotRead("the response exceeds its size limit: request this record again", retriable=True)


class ReadBudget:
    """Counts the bytes that one call has received."""

    def __init__(self, bytes_max: float) -> None:
        self.spent_bytes: float = 0
        self._bytes_max = bytes_max

    def spend(self, size_bytes: float) -> None:
        """Count received bytes."""
        self.spent_bytes += size_bytes

    @property
    def left_bytes(self) -> float:
        """How many more bytes the call may receive."""
        return max(0, self._bytes_max - self.spent_bytes)

    @property
    def exceeded(self) -> bool:
        """Whether the call has received more than it may."""
        return self.spent_bytes > self._bytes_max


class BoundedReads:
    """Chooses how many records each call for one table reads, so that their size is probably at most `bytes_max`.

    If the replies to one call are larger than twice the limit, they are discarded.
    """

    def __init__(self, bytes_max: int = READ_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._count_max = 1
        self._limited_until = -math.inf

    async def read(
        self,
        items: Sequence[Item],
        read: Callable[[Sequence[Item], ReadBudget], Awaitable[Sequence[Result | TableError]]],
    ) -> Sequence[Result | TableError]:
        """Read some of the items. The others end as NOT_READ. The first item is always read.

        `read` returns NOT_READ for items that it has not read when it exceeds the budget.
        """
        if len(items) <= 1:
            return await read(items, ReadBudget(math.inf))
        sent = items
        if time.monotonic() < self._limited_until:
            sent = items[: self._count_max]
        limited = len(sent) < len(items)
        budget = ReadBudget(2 * self._bytes_max if len(sent) > 1 else math.inf)
        outcomes = await read(sent, budget)
        if budget.exceeded and outcomes[0] is NOT_READ:
            budget = ReadBudget(math.inf)
            outcomes = [*await read(items[:1], budget), *outcomes[1:]]
            self._limit(1, budget.spent_bytes)
        elif limited or budget.exceeded:
            self._limit(len(outcomes) - outcomes.count(NOT_READ), budget.spent_bytes)
        return [*outcomes, *[NOT_READ] * (len(items) - len(outcomes))] if limited else outcomes

    def _limit(self, count: int, size_bytes: float) -> None:
        """Let the next calls read as many records as fit if these have the average size, at most twice as many."""
        fitting = int(self._bytes_max * count / max(1, size_bytes))
        self._count_max = max(1, min(fitting, 2 * count))
        self._limited_until = time.monotonic() + LARGE_RECORDS_S


def value_bytes(outcomes: Iterable[object]) -> int:
    """Return the size of the values of outcomes."""
    if isinstance(outcomes, Results):
        return outcomes.value_bytes
    size_bytes = 0
    for outcome in outcomes:
        size_bytes += len(getattr(outcome, "value", None) or b"")
        if parts := getattr(outcome, "partitions", None):
            size_bytes += value_bytes([part.outcome for part in parts])
    return size_bytes


def without_value(operation: Operation) -> Operation:
    """Return the operation, a write without the request for its value."""
    if isinstance(operation, Put | Update) and operation.returning:
        return replace(operation, returning=False)
    return operation


def not_read(outcomes: Iterable[Outcome]) -> list[int]:
    """Return the positions of operations that were not attempted."""
    return [position for position, outcome in enumerate(outcomes) if outcome is NOT_READ]


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

    def timeout(self, grace_s: float = 0.0) -> asyncio.Timeout:
        """Return a context that raises TimeoutError so many seconds after the deadline."""
        return asyncio.timeout_at(None if self.until == math.inf else self.until + grace_s)


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
