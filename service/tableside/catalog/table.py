"""A table as callers use it: runs single operations, batches and scans within a deadline."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from ..core import Capabilities, Operation, Outcome, Page, Scan, Store, TableSpec
from ..core.batch import Batch, Results, all_succeeded, apply_by_kind
from ..core.budget import NOT_READ, Budget, ValueRoom, in_pieces, not_read
from ..core.concurrency import Deadlines, Yielder
from ..core.errors import DeadlineExceeded, TableError, TooLarge
from ..policies import CallerRate
from .admission import InFlightLimit, StoreInFlight
from .combining import keys_differ, set_outcomes, steps_by_key
from .table_metrics import TableMetrics

Result = TypeVar("Result")

GRACE_S = 0.1
"""Extra time after the deadline for the store to return and report the operations that it has finished.

Up to `RESOLUTION_S` of it may be missing. Stores and policies wait at most half as long after a deadline.
"""


class Table:
    """A named set of records.

    `operations` limits the operations in flight in the whole process, and `in_store` the work in flight in the table's
    store. A call above a limit raises Overloaded before any of its operations is attempted. An operation counts once
    for each partition that it names. `caller_rate` limits the operations of each caller in all tables.
    """

    def __init__(
        self,
        store: Store,
        *,
        deadline_s: float = 10.0,
        metrics: TableMetrics | None = None,
        operations: InFlightLimit | None = None,
        in_store: StoreInFlight | None = None,
        caller_rate: CallerRate | None = None,
    ) -> None:
        self.spec: TableSpec = store.spec
        self.deadline_s = deadline_s
        self._store = store
        self._metrics = metrics
        self._operations = operations
        self._in_store = in_store
        self._caller_rate = caller_rate
        self._deadlines = Deadlines()
        self._in_flight = 0
        self._idle: asyncio.Future[None] | None = None

    @property
    def capabilities(self) -> Capabilities:
        """Return the features of the store beyond the four operations."""
        return self._store.capabilities

    def budget(self, caller: str = "") -> Budget:
        """Return the budget of a call that begins now."""
        return Budget(time.monotonic() + self.deadline_s, self.spec.name, caller)

    async def one(self, operation: Operation, budget: Budget | None = None) -> Outcome:
        """Do one operation. An expected failure is returned as the outcome, not raised."""
        started = time.perf_counter()
        budget = budget or self.budget()
        count = _partition_count(operation) if self.spec.partitions else 1
        self._enter(count, budget.caller, budget.body_bytes)
        try:
            [outcome] = await self._send([operation], budget)
            if outcome is NOT_READ:
                [outcome] = await self._apply_all([operation], budget, ValueRoom(math.inf))
        finally:
            self._leave(count, budget.caller, budget.body_bytes)
        if self._metrics is not None:
            self._metrics.one(operation, outcome, time.perf_counter() - started)
        return outcome

    async def batch(self, operations: Sequence[Operation], budget: Budget | None = None) -> Sequence[Outcome]:
        """Do many operations and return their outcomes in the same order.

        Operations on one key take effect in their order. Operations on different keys are independent.
        Operations not finished by the deadline end as DeadlineExceeded. If the budget's room is full, gets may end as
        TooLarge and writes may return no value.
        """
        if not operations:
            return []
        started = time.perf_counter()
        budget = budget or self.budget()
        count = self._count(operations) if self.spec.partitions else len(operations)
        self._enter(count, budget.caller, budget.body_bytes)
        try:
            apply = self._apply_all if keys_differ(operations) else self._apply_in_rounds
            outcomes = await apply(operations, budget, budget.room or ValueRoom(math.inf))
            if isinstance(operations, Batch):
                outcomes = Results.of(outcomes) or outcomes
        finally:
            self._leave(count, budget.caller, budget.body_bytes)
        if self._metrics is not None:
            self._metrics.many(operations, outcomes, time.perf_counter() - started)
        return outcomes

    async def scan(self, scan: Scan, budget: Budget | None = None) -> Page:
        """Read a page of records. Raise a TableError if that fails."""
        return await self._scan("scan", lambda: self._store.scan(scan), budget or self.budget())

    async def splits(self, count_max: int, budget: Budget | None = None) -> list[bytes]:
        """Return disjoint parts of the key space that together cover the table. Raise a TableError if that fails."""
        return await self._scan("splits", lambda: self._store.splits(count_max), budget or self.budget())

    async def drain(self) -> None:
        """Return when no operation is in flight. The table must not be used afterwards."""
        while self._in_flight:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def _count(self, operations: Sequence[Operation]) -> int:
        """Return the number of operations, each counted once per partition. Raise TooLarge if it exceeds the limit.

        Each operation has an outcome in each partition, so a small request can have a large response.
        """
        count = sum(map(_partition_count, operations))
        maximum = count if self._operations is None else self._operations.maximum
        if len(operations) > 1 and count > max(maximum, len(operations)):
            limit = f"{maximum} operations (operations_in_flight_max)"
            raise TooLarge(f"a batch may have {limit}, each counted once for each partition")
        return count

    def _enter(self, count: int, caller: str, body_bytes: int = 0) -> None:
        if self._in_store is not None:
            self._in_store.check(count, body_bytes)
        if self._operations is not None:
            self._operations.enter(count, caller)
        if self._in_store is not None:
            self._in_store.add(count, body_bytes)
        self._in_flight += 1

    def _leave(self, count: int, caller: str, body_bytes: int = 0) -> None:
        if self._in_store is not None:
            self._in_store.leave(count, body_bytes)
        if self._operations is not None:
            self._operations.leave(count, caller)
        self._in_flight -= 1
        if self._idle is not None and not self._in_flight:
            self._idle.set_result(None)
            self._idle = None

    async def _scan(self, kind: str, work: Callable[[], Awaitable[Result]], budget: Budget) -> Result:
        started = time.perf_counter()
        self._enter(1, budget.caller)
        try:
            result = await self._run_within(work, budget)
        except TableError as error:
            self._observe_scan(kind, error, started)
            raise
        finally:
            self._leave(1, budget.caller)
        self._observe_scan(kind, None, started)
        return result

    def _observe_scan(self, kind: str, error: TableError | None, started: float) -> None:
        if self._metrics is not None:
            self._metrics.scanned(kind, error, time.perf_counter() - started)

    async def _run_within(self, work: Callable[[], Awaitable[Result]], budget: Budget) -> Result:
        if budget.is_over():
            raise budget.exceeded()
        try:
            async with budget.timeout():
                return await work()
        except TimeoutError:
            raise budget.exceeded() from None

    async def _apply_all(
        self, operations: Sequence[Operation], budget: Budget, room: ValueRoom, *, last: bool = True
    ) -> Sequence[Outcome]:
        """Apply operations on distinct keys. Send those again that the store has not read, while there is room.

        `last`: no operation of the batch follows, so that the values need not be counted if all were read.
        """
        outcomes = await self._apply(operations, budget)
        if all_succeeded(outcomes) or not (waiting := not_read(outcomes)):
            return outcomes if last else await in_pieces(room.keep(outcomes, budget.until))
        kept = await in_pieces(room.keep(outcomes, budget.until))
        while fitting := [position for position in waiting if room.fits(operations[position])]:
            sent, later = fitting[: room.count_max], fitting[room.count_max :]
            answers = await self._apply([room.reduced(operations[position]) for position in sent], budget)
            answers = await in_pieces(room.keep(answers, budget.until))
            for position, answer in zip(sent, answers, strict=True):
                kept[position] = answer
            waiting = [sent[index] for index in not_read(answers)] + later
        return kept

    async def _apply_in_rounds(self, operations: Sequence[Operation], budget: Budget, room: ValueRoom) -> list[Outcome]:
        """Send the first step of every key, then the second step of every key that has one, and so on.

        The only step of a key that occurs once is its operation. Gets whose values do not fit are not sent.
        """
        outcomes: list[Outcome] = [NOT_READ] * len(operations)
        folding = self.capabilities.any_value
        try:
            steps = await steps_by_key(operations, self.spec.key.names, folding=folding, budget=budget)
        except DeadlineExceeded as error:
            return [error.with_traceback(None)] * len(operations)
        single = {position: operation for position, operation in enumerate(operations) if operation.key not in steps}
        waiting = [*steps.values()]
        yielder = Yielder()
        while single or waiting:
            await yielder.maybe_yield()
            taken = [(later, later.popleft()) for later in waiting]
            sent = single | {step.positions[0]: step.operation for _, step in taken}
            fitting = [position for position in sorted(sent) if room.fits(sent[position])]
            reduced = [room.reduced(sent[position]) for position in fitting]
            answers = await self._apply_all(reduced, budget, room, last=False) if reduced else []
            for position, answer in zip(fitting, answers, strict=True):
                outcomes[position] = answer
            for later, step in taken:
                set_outcomes(later, step, outcomes[step.positions[0]], operations, outcomes)
            single, waiting = {}, [later for later in waiting if later]
        return outcomes

    async def _apply(self, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        return await apply_by_kind(operations, partial(self._send, budget=budget))

    async def _send(self, operations: Sequence[Operation], budget: Budget) -> Sequence[Outcome]:
        """Apply operations of one kind."""
        if budget.is_over():
            return [budget.exceeded()] * len(operations)
        gate = None if self._caller_rate is None else self._caller_rate.gate_for(budget.caller)
        apply = self._store.apply if gate is None else partial(gate.apply, self._store)
        try:
            return await self._deadlines.run(apply(operations, budget), budget.until + GRACE_S)
        except TimeoutError:
            return budget.unanswered(operations)


def _partition_count(operation: Operation) -> int:
    """Return how often an operation counts: once for each partition that it names."""
    return 1 if operation.partitions is None else len(operation.partitions)
