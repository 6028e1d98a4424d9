"""The coalescing policy: combines small calls of the store and divides large ones.

A small call shares a call of the store with others (`shared_call`). A large call is sent directly, in parts. So is a
small one if waiting for others is probably useless.
"""

import asyncio
import math
from collections.abc import Sequence

from ...core import Operation, Outcome, Store, chunks_of, gather_bounded
from ...core.operations import size_bytes
from ...core.store import Policy
from ...telemetry import Traces
from .key_order import DirectCall, KeyOrder
from .metrics import CoalesceMetrics, TableCoalesceMetrics
from .shared_call import CallLimits, SharedCalls, call_store, has_writes

DIRECT_SHARE = 4
"""A call with at least this fraction of `operations_max` (a quarter), and two operations, is sent without waiting."""

CONCURRENT_PARTS_MAX = 8
"""Limit on the parts of one call that are in flight at the same time."""


class Coalesce(Policy):
    """A store that combines small calls and divides large ones."""

    def __init__(
        self,
        inner: Store,
        *,
        operations_max: int,
        bytes_max: int,
        linger_s: float | None = 0.0,
        metrics: CoalesceMetrics | None = None,
        traces: Traces | None = None,
    ) -> None:
        """Limit each call of `inner` to `operations_max` operations and `bytes_max` bytes of values and updates.

        A single operation with more bytes is sent alone. `linger_s` is the time that an operation waits for others:
        with 0 it waits for one iteration of the event loop. With None, calls are divided, but not shared or delayed.
        """
        super().__init__(inner)
        limits = self._limits = CallLimits(operations_max, bytes_max)
        self._direct_min = max(2, -(-operations_max // DIRECT_SHARE))
        self._metrics = None if metrics is None else TableCoalesceMetrics(metrics, inner.spec.name)
        self._order = KeyOrder()
        self._writing: set[asyncio.Task[Sequence[Outcome]]] = set()
        self._shared = (
            None if linger_s is None else SharedCalls(inner, self._order, self._metrics, limits, linger_s, traces)
        )

    async def apply(self, operations: Sequence[Operation], until: float = math.inf) -> Sequence[Outcome]:
        """Do the operations, in calls of the store that may also have other callers' operations."""
        if self._shared is None:
            return await self._in_parts(operations, until)
        if len(operations) < self._direct_min and not self._shared.idle:
            return await self._shared.outcomes(self._shared.accept(operations, until)) if operations else []
        writes = has_writes(operations)
        if blocked := self._order.blocked_positions(operations, writes=writes):
            return await self._mixed(self._shared, operations, blocked, until)
        return await self._direct(operations, until, writes=writes)

    async def close(self) -> None:
        """Send waiting operations, and return when no operation is in flight. Later operations do not linger.

        Operations that arrive later are executed too. A second call does nothing.
        """
        if self._shared is not None:
            await self._shared.drain()
        await super().close()

    async def _in_parts(self, operations: Sequence[Operation], until: float) -> Sequence[Outcome]:
        """Divide a call if it is too large, without sharing it."""
        cut = self._cut(operations, writes=has_writes(operations))
        if self._metrics is not None:
            for part in cut:
                self._metrics.direct(len(part))
        if len(cut) < 2:  # the exceptions of the store pass unchanged then
            return await self._inner.apply(operations, until)
        answers = await gather_bounded([call_store(self._inner, part, until) for part in cut], CONCURRENT_PARTS_MAX)
        return [outcome for answer in answers for outcome in answer]

    async def _direct(self, operations: Sequence[Operation], until: float, *, writes: bool) -> Sequence[Outcome]:
        """Send operations that do not have to wait for others, in concurrent parts."""
        directs = [DirectCall(part, writes=writes) for part in self._cut(operations, writes=writes)]
        for direct in directs:
            self._order.begin(direct)
        if len(directs) == 1:
            return await self._send_part(directs[0], until)
        try:
            answers = await gather_bounded([self._send_part(direct, until) for direct in directs], CONCURRENT_PARTS_MAX)
        finally:
            for direct in directs:
                if not direct.sent:
                    self._end(direct)
        return [outcome for answer in answers for outcome in answer]

    async def _send_part(self, direct: DirectCall, until: float) -> Sequence[Outcome]:
        """Send a part. Once a part with writes is sent, cancellation of the caller does not cancel it."""
        direct.sent = True
        if not direct.writes:
            return await self._send(direct, until)
        task = asyncio.get_running_loop().create_task(self._send(direct, until))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return await asyncio.shield(task)

    async def _send(self, direct: DirectCall, until: float) -> Sequence[Outcome]:
        if self._metrics is not None:
            self._metrics.direct(len(direct.operations))
        try:
            return await call_store(self._inner, direct.operations, until)
        finally:
            self._end(direct)

    def _end(self, direct: DirectCall) -> None:
        released = self._order.end(direct)
        if self._shared is not None:
            self._shared.release(released)

    def _cut(self, operations: Sequence[Operation], *, writes: bool) -> list[Sequence[Operation]]:
        limits = self._limits
        if 0 < len(operations) <= limits.operations_max and (
            not writes or sum(map(size_bytes, operations)) <= limits.bytes_max
        ):
            return [operations]
        return list(chunks_of(operations, limits.operations_max, limits.bytes_max if writes else None, size_bytes))

    async def _mixed(
        self, shared: SharedCalls, operations: Sequence[Operation], blocked: Sequence[int], until: float
    ) -> list[Outcome]:
        """Send the operations that need not wait, and queue the others behind earlier ones on their keys."""
        free = sorted(set(range(len(operations))).difference(blocked))
        rest = [operations[position] for position in free]
        waiter = shared.accept([operations[position] for position in blocked], until)
        try:
            answers = await self._direct(rest, until, writes=has_writes(rest))
        except BaseException:
            shared.forget(waiter)
            raise
        outcomes = dict(zip(free, answers, strict=True)) | dict(
            zip(blocked, await shared.outcomes(waiter), strict=True)
        )
        return [outcomes[position] for position in range(len(operations))]
