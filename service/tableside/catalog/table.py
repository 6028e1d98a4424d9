"""A table as its callers see it: one operation or many, in order where they share a key, within a deadline.

Knows the seam below it, and nothing of HTTP or of which store and policies are behind the seam.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from ..core import (
    Applied,
    Capabilities,
    Changes,
    DeadlineExceeded,
    Get,
    InvalidOperation,
    Key,
    Operation,
    Outcome,
    Page,
    PartitionOutcome,
    Put,
    Scan,
    Store,
    TableError,
    TableSpec,
    TooLarge,
    Update,
    Written,
    run_until,
    touched_members,
)
from ..core.updates import apply, fold
from .admission import InFlightLimit
from .table_metrics import TableMetrics

Result = TypeVar("Result")

UPDATED_BYTES_MAX = 2**16
"""How long the value of a put is at most that an update is applied to here: reading it takes time that others wait."""

GRACE_S = 0.1
"""How long after the deadline a store is still waited for: it ends by itself then, and knows what it has finished."""

COMBINED_OPERATIONS_MAX = 256
"""How many operations on one key become one: folding each of n into one takes time that grows with n * n."""


class Table:
    """A named set of records.

    `operations` bounds what is under way in the whole service; what would be too much is Overloaded, raised before
    anything of it is attempted. An operation counts once for each partition that it names.
    """

    def __init__(
        self,
        store: Store,
        *,
        deadline_s: float = 10.0,
        measure: TableMetrics | None = None,
        operations: InFlightLimit | None = None,
    ) -> None:
        self.spec: TableSpec = store.spec
        self.deadline_s = deadline_s
        self._store = store
        self._measure = measure
        self._operations = operations
        self._under_way = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Return what can be done beyond the four operations."""
        return self._store.capabilities

    async def one(self, operation: Operation, deadline_s: float | None = None) -> Outcome:
        """Do one operation; an expected failure is the outcome, not an exception."""
        started = time.perf_counter()
        count = _partition_count(operation) if self.spec.partitions else 1
        self._enter(count)
        try:
            [outcome] = await self._apply([operation], self._until(deadline_s))
        finally:
            self._leave(count)
        if self._measure is not None:
            self._measure.one(operation, outcome, time.perf_counter() - started)
        return outcome

    async def batch(self, operations: Sequence[Operation], deadline_s: float | None = None) -> list[Outcome]:
        """Do many operations and return their outcomes in the same order.

        Operations on one key take effect in their order; on different keys they are independent. `deadline_s` is the
        caller's, and can only shorten the table's. What is not finished by then ends as DeadlineExceeded.
        """
        if not operations:
            return []
        started = time.perf_counter()
        count = self._count(operations) if self.spec.partitions else len(operations)
        self._enter(count)
        try:
            outcomes = await self._all(operations, self._until(deadline_s))
        finally:
            self._leave(count)
        if self._measure is not None:
            self._measure.many(operations, outcomes, time.perf_counter() - started)
        return outcomes

    async def scan(self, scan: Scan, deadline_s: float | None = None) -> Page:
        """Read a page of records. Raise a TableError if that fails."""
        return await self._measured("scan", lambda: self._store.scan(scan), deadline_s)

    async def splits(self, count_max: int, deadline_s: float | None = None) -> list[bytes]:
        """Return disjoint parts that together cover the table. Raise a TableError if that fails."""
        return await self._measured("splits", lambda: self._store.splits(count_max), deadline_s)

    async def drained(self) -> None:
        """Return when nothing is under way; from then on nobody may ask it any more."""
        while self._under_way:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _count(self, operations: Sequence[Operation]) -> int:
        """Return how many operations they are in their partitions. Raise TooLarge if that is more than may be.

        Each has an answer of its own in each partition, so what is sent may be small and what it makes is not.
        """
        count = sum(map(_partition_count, operations))
        if (
            self._operations is not None
            and len(operations) > 1
            and count > max(self._operations.maximum, len(operations))
        ):
            most = self._operations.maximum
            raise TooLarge(f"a batch may have {most} operations (operations_in_flight_max), once for each partition")
        return count

    def _enter(self, count: int) -> None:
        if self._operations is not None:
            self._operations.enter(count)
        self._under_way += 1

    def _leave(self, count: int) -> None:
        if self._operations is not None:
            self._operations.leave(count)
        self._under_way -= 1
        if self._idle is not None and not self._under_way:
            self._idle.set_result(None)
            self._idle = None

    async def _measured(self, kind: str, work: Callable[[], Awaitable[Result]], deadline_s: float | None) -> Result:
        started = time.perf_counter()
        self._enter(1)
        try:
            result = await self._bounded(work, deadline_s)
        except TableError as error:
            self._scanned(kind, error, started)
            raise
        finally:
            self._leave(1)
        self._scanned(kind, None, started)
        return result

    def _scanned(self, kind: str, error: TableError | None, started: float) -> None:
        if self._measure is not None:
            self._measure.scanned(kind, error, time.perf_counter() - started)

    async def _all(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        if len({operation.key for operation in operations}) == len(operations):
            return await self._apply(operations, until)
        return await self._in_rounds(operations, until)

    async def _bounded(self, work: Callable[[], Awaitable[Result]], deadline_s: float | None) -> Result:
        until = self._until(deadline_s)
        if asyncio.get_running_loop().time() >= until:
            raise self._too_late("no")
        try:
            async with asyncio.timeout_at(until):
                return await work()
        except TimeoutError:
            raise self._too_late("no") from None

    async def _in_rounds(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        """Send the first step of every key, then the second of those that have one, and so on."""
        outcomes: list[Outcome] = [None] * len(operations)
        waiting = _steps(operations, self.spec.key.names, folding=self.capabilities.any_value)
        while waiting:
            keys = list(waiting)
            steps = [waiting[key].popleft() for key in keys]
            answers = await self._apply([step.operation for step in steps], until)
            for key, step, answer in zip(keys, steps, answers, strict=True):
                _settle(waiting[key], step, answer, operations, outcomes)
                if not waiting[key]:
                    del waiting[key]
        return outcomes

    async def _apply(self, operations: Sequence[Operation], until: float) -> list[Outcome]:
        if until <= asyncio.get_running_loop().time():
            return [self._too_late("no")] * len(operations)
        try:
            return await run_until(self._store.apply(operations, until), until + GRACE_S)
        except TimeoutError:
            return [self._too_late("no" if isinstance(operation, Get) else "unknown") for operation in operations]

    def _until(self, deadline_s: float | None) -> float:
        allowed_s = self.deadline_s if deadline_s is None else min(deadline_s, self.deadline_s)
        return asyncio.get_running_loop().time() + allowed_s

    def _too_late(self, applied: Applied) -> DeadlineExceeded:
        return DeadlineExceeded(f"table {self.spec.name!r}: the deadline was over", applied=applied)


def _partition_count(operation: Operation) -> int:
    """Return how many an operation is once it is under way: one in each partition that it names."""
    return 1 if operation.partitions is None else len(operation.partitions)


class _Step(msgspec.Struct, frozen=True):
    """One operation that stands for one or more of the caller's, given by their positions, on one key."""

    operation: Operation
    positions: tuple[int, ...]


def _steps(operations: Sequence[Operation], key_names: frozenset[str], *, folding: bool) -> dict[Key, deque[_Step]]:
    waiting: dict[Key, deque[_Step]] = {}
    for position, operation in enumerate(operations):
        steps = waiting.setdefault(operation.key, deque())
        together = None
        if steps and len(steps[-1].positions) < COMBINED_OPERATIONS_MAX:
            together = _combined(steps[-1].operation, operation, key_names, folding=folding)
        if together is None:
            steps.append(_Step(operation, (position,)))
        else:
            steps.append(_Step(together, (*steps.pop().positions, position)))
    return waiting


def _combined(earlier: Operation, later: Operation, key_names: frozenset[str], *, folding: bool) -> Operation | None:
    """Return one operation with the effect of two in turn, if every caller can still be told what became of his.

    An update that touches a member named as the key may be refused for the value that it leaves, which one that
    follows might hide: it goes by itself. So does what goes to other partitions, or writes to several: one of two may
    be refused in one of these only. And where a store refuses some values (no `folding` then), each write is to hear of
    its own.
    """
    if earlier.partitions != later.partitions or not (folding or isinstance(later, Get)):
        return None
    match earlier, later:
        case Get(), Get():
            return min(earlier, later, key=_age_max_s)
        case Put(), Put() if _plain(earlier) and _plain(later):
            return later
        case Put(), Update() if _plain(earlier) and _plain(later):
            return None if _touches(key_names, later.changes) else _updated(earlier, later)
        case Update(), Update() if _plain(earlier) and _plain(later):
            if _touches(key_names, earlier.changes + later.changes):
                return None
            return msgspec.structs.replace(earlier, changes=fold(earlier.changes, later.changes))
    return None


def _touches(names: frozenset[str], changes: Changes) -> bool:
    return bool(names) and not names.isdisjoint(touched_members(changes))


def _updated(put: Put, update: Update) -> Put | None:
    """Return the put of what an update makes of its value; none where the update does not fit, or would take long."""
    if len(put.value) > UPDATED_BYTES_MAX:
        return None
    try:
        return msgspec.structs.replace(put, value=apply(put.value, update.changes))
    except InvalidOperation:
        return None


def _age_max_s(get: Get) -> float:
    """Return how old an answer the caller takes at most."""
    return math.inf if get.max_age_s is None else get.max_age_s


def _plain(write: Put | Update) -> bool:
    conditional = write.if_match is not None or (isinstance(write, Put) and write.if_absent)
    several = write.partitions is not None and len(write.partitions) > 1
    return not (conditional or several or write.token or write.returning or write.ttl_s is not None)


def _settle(
    steps: deque[_Step], step: _Step, answer: Outcome, operations: Sequence[Operation], outcomes: list[Outcome]
) -> None:
    """Tell each caller of a step what became of his operation; hold back what follows a failure that may pass."""
    if isinstance(answer, TableError):
        if (unsettled := _unresolved(answer)) is not None:
            for held_back in steps:
                _set_outcome(held_back.positions, unsettled.not_attempted(), outcomes)
            steps.clear()
        elif len(step.positions) > 1 and not isinstance(step.operation, Get):
            # One of them is refused, and the others must stand: each goes by itself.
            steps.extendleft(_Step(operations[position], (position,)) for position in reversed(step.positions))
            return
    if isinstance(answer, Written) and len(step.positions) > 1:
        _set_superseded(step.positions, answer, outcomes)
    else:
        _set_outcome(step.positions, answer, outcomes)


def _unresolved(error: TableError) -> TableError | None:
    """Return what may pass, or is not known, of a failure: of one in several partitions, what is so in any of them."""
    parts = [part.outcome for part in error.partitions or () if isinstance(part.outcome, TableError)] or [error]
    return next((part for part in parts if part.retriable or part.applied == "unknown"), None)


def _set_outcome(positions: Sequence[int], answer: Outcome, outcomes: list[Outcome]) -> None:
    for position in positions:
        outcomes[position] = answer


def _set_superseded(positions: Sequence[int], answer: Written, outcomes: list[Outcome]) -> None:
    """Give the last its etag, and the others one that no record has: their versions were gone at once."""
    for position in positions:
        etag = answer.etag if position == positions[-1] or answer.etag is None else f"{answer.etag}.{position}"
        outcomes[position] = _with(answer, etag, created=answer.created and position == positions[0])


def _with(answer: Written, etag: str | None, *, created: bool) -> Written:
    """Return the same with another etag, also in the one partition that it may name."""
    own = msgspec.structs.replace(answer, etag=etag, created=created, partitions=None)
    if answer.partitions is None:
        return own
    placed = tuple(PartitionOutcome(part.partition, own) for part in answer.partitions)
    return msgspec.structs.replace(own, partitions=placed)
