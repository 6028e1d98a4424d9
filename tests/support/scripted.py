"""A store around memory for tests of policies. A test sets its faults and delays, and reads its calls."""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from tableside.core import apply_by_kind
from tableside.core.budget import NO_DEADLINE, Budget
from tableside.core.errors import DeadlineExceeded, TableError
from tableside.core.operations import Get, Operation, Outcome
from tableside.core.store import Page, Policy, Scan, Store, TableSpec
from tableside.stores.memory import MemoryStore

Fault = TableError | None


class Scripted(Policy):
    """Records its calls with their times. A fault with applied "unknown" happens after the write was applied.

    A call waits for `gate` and then takes `takes_s`. It ends at its deadline without an effect, unless the store is
    `deaf`.
    """

    def __init__(self, inner: Store | None = None) -> None:
        super().__init__(inner or MemoryStore(TableSpec("t")))
        self.calls: list[list[Operation]] = []
        self.called_at: list[float] = []
        self.untils: list[float] = []
        self.callers: list[str] = []
        self.fault: Callable[[Operation, int], Fault] = lambda operation, call: None
        self.gate: asyncio.Event | None = None
        self.takes_s: Callable[[Sequence[Operation]], float] = lambda operations: 0.0
        self.deaf = False
        self.under_way = 0
        self.under_way_max = 0
        self.cancelled = 0
        self.scans = 0

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        call = len(self.calls) + 1
        self.calls.append(list(operations))
        self.called_at.append(asyncio.get_running_loop().time())
        self.untils.append(budget.until)
        self.callers.append(budget.caller)
        if not await self._in_time(self.takes_s(operations), budget.until):
            return [_unfinished(operation) for operation in operations]
        faults = [self.fault(operation, call) for operation in operations]
        done = [
            operation
            for operation, fault in zip(operations, faults, strict=True)
            if fault is None or (fault.applied == "unknown" and not isinstance(operation, Get))
        ]
        answers = dict(zip(map(id, done), await self._inner.apply(done, budget), strict=True))
        return [
            answers[id(operation)] if fault is None else fault
            for operation, fault in zip(operations, faults, strict=True)
        ]

    async def scan(self, scan: Scan) -> Page:
        self.scans += 1
        await self._in_time(self.takes_s([]), math.inf)
        return await self._inner.scan(scan)

    async def _in_time(self, takes_s: float, until: float) -> bool:
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        left_s = math.inf if self.deaf else until - asyncio.get_running_loop().time()
        try:
            if self.gate is not None:
                await self.gate.wait()
            if takes_s > 0:
                await asyncio.sleep(min(takes_s, left_s))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        return takes_s <= left_s


class RecordingStore(Scripted):
    """A scripted store whose calls must have different keys."""

    def __init__(self, takes_s: float = 0.0) -> None:
        super().__init__()
        self.takes_s = lambda operations: takes_s

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> list[Outcome]:
        assert len({operation.key for operation in operations}) == len(operations), "a key occurs twice in a call"
        return await super().apply(operations, budget)

    @property
    def sizes(self) -> list[int]:
        return [len(call) for call in self.calls]


class Divided(Policy):
    """Calls a policy like `Table`: with operations of one kind, at least one."""

    async def apply(self, operations: Sequence[Operation], budget: Budget = NO_DEADLINE) -> Sequence[Outcome]:
        if not operations:
            return []
        return await apply_by_kind(operations, partial(self._inner.apply, budget=budget))


def _unfinished(operation: Operation) -> DeadlineExceeded:
    return DeadlineExceeded("over", applied="no" if isinstance(operation, Get) else "unknown")
