"""Calls of the store, whatever for: none later than its deadline, and a bug of the store stays with its call."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from ...core import Applied, DeadlineExceeded, Get, Internal, Operation, Outcome, Put, Store, Update
from ...core.directions import reads

log = logging.getLogger(__name__)


async def ask(store: Store, operations: Sequence[Operation], until: float) -> list[Outcome]:
    """Call the store. An exception of it is logged, and the outcome of what was in the call and of nothing else."""
    if until <= asyncio.get_running_loop().time():
        return [too_late(store, "no")] * len(operations)
    try:
        outcomes = await store.apply(operations, until)
        if len(outcomes) != len(operations):
            raise AssertionError(f"{len(operations)} operations had {len(outcomes)} outcomes")
    except Exception:
        log.exception("table %s: a call of the store failed", store.spec.name)
        detail = f"table {store.spec.name!r}: the call of the store failed"
        return [Internal(detail, applied=in_doubt(operation)) for operation in operations]
    return outcomes


def too_late(store: Store, applied: Applied) -> DeadlineExceeded:
    """Return what becomes of an operation whose deadline is over."""
    return DeadlineExceeded(f"table {store.spec.name!r}: the deadline was over", applied=applied)


def in_doubt(operation: Operation) -> Applied:
    """Return whether an operation that is under way may have changed something."""
    return "no" if type(operation) is Get else "unknown"


def write(operations: Sequence[Operation]) -> bool:
    """Whether any of them may change something."""
    return reads(operations) != len(operations)


def size_bytes(operation: Operation) -> int:
    """Return how many bytes of values and updates an operation sends."""
    if isinstance(operation, Put):
        return len(operation.value)
    if isinstance(operation, Update):
        return len(msgspec.json.encode(operation.changes)) + len(operation.default or b"")
    return 0
