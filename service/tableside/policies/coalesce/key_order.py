"""Ordering by key: a write runs alone on its key, and no operation overtakes an earlier one on the same key.

Operations of small calls are tracked by key. A direct (large) call is tracked as a whole. Its keys are compared only
when other operations are waiting or in flight.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter

from ...core import Key, Operation
from .slots import Slot

_KEY = attrgetter("key")


class KeyQueue:
    """The operations on one key: the number in flight, including the forming call, and the waiting operations."""

    __slots__ = ("in_flight", "last", "waiting", "writing")

    def __init__(self) -> None:
        self.in_flight = 0
        self.writing = False
        self.last: Slot | None = None
        self.waiting: deque[Slot] | None = None

    def may_start(self, slot: Slot) -> bool:
        """Return whether an operation may start now."""
        return not self.waiting and (not self.in_flight or (slot.reads and not self.writing))

    def start(self, slot: Slot) -> None:
        """Count an operation as in flight."""
        self.in_flight += 1
        self.writing = not slot.reads


class DirectCall:
    """A large call, or a part of one, that is sent alone.

    `queues` are the queues of those of its keys that other operations wait for.
    """

    def __init__(self, operations: Sequence[Operation], *, writes: bool) -> None:
        self.operations = operations
        self.writes = writes
        self.sent = False
        self.queues: dict[Key, KeyQueue] = {}

    @cached_property
    def keys(self) -> frozenset[Key]:
        """Return the keys of its operations."""
        return frozenset(map(_KEY, self.operations))


class KeyOrder:
    """The accepted and unfinished operations: a queue for each key, and the direct calls."""

    def __init__(self) -> None:
        self._queues: dict[Key, KeyQueue] = {}
        self._reading: dict[DirectCall, None] = {}
        self._writing: dict[DirectCall, None] = {}

    def __len__(self) -> int:
        """Return the number of keys with unfinished operations, plus the number of direct calls."""
        return len(self._queues) + len(self._reading) + len(self._writing)

    def joinable(self, key: Key) -> Slot | None:
        """Return the slot that a get of the key can share: the last one, if it is a get that is not sent yet."""
        queue = self._queues.get(key)
        last = None if queue is None else queue.last
        return last if last is not None and last.reads and last.call is None else None

    def accept(self, slot: Slot) -> bool:
        """Add an operation behind the earlier ones on its key. Return whether it may start now."""
        key = slot.operation.key
        if (queue := self._queues.get(key)) is None:
            queue = self._queues[key] = KeyQueue()
            self._count_directs(key, queue, self._writing)
        if not slot.reads:
            self._count_directs(key, queue, self._reading)
        queue.last = slot
        if queue.may_start(slot):
            queue.start(slot)
            return True
        if queue.waiting is None:
            queue.waiting = deque()
        queue.waiting.append(slot)
        return False

    def finish(self, slots: Iterable[Slot]) -> list[Slot]:
        """Remove operations that had started. Return the operations that may start now."""
        next_slots = [self._finish_one(key, self._queues[key]) for key in (slot.operation.key for slot in slots)]
        return [slot for slot in next_slots if slot is not None]

    def blocked_positions(self, operations: Sequence[Operation], *, writes: bool) -> list[int]:
        """Return the positions of operations that must wait for unfinished operations on their keys."""
        others = [*self._writing, *self._reading] if writes else [*self._writing]
        if not self._queues and not others:
            return []
        keys = list(map(_KEY, operations))
        if self._queues.keys().isdisjoint(keys) and all(other.keys.isdisjoint(keys) for other in others):
            return []
        taken = self._queues.keys() | set().union(*(other.keys for other in others))
        return [position for position, key in enumerate(keys) if key in taken]

    def begin(self, direct: DirectCall) -> None:
        """Add a direct call. None of its operations may be waiting."""
        (self._writing if direct.writes else self._reading)[direct] = None

    def end(self, direct: DirectCall) -> list[Slot]:
        """Remove a direct call. Return the operations that may start now."""
        del (self._writing if direct.writes else self._reading)[direct]
        next_slots = [self._finish_one(key, queue) for key, queue in direct.queues.items()]
        return [slot for slot in next_slots if slot is not None]

    def _count_directs(self, key: Key, queue: KeyQueue, directs: dict[DirectCall, None]) -> None:
        for direct in directs:
            if key not in direct.queues and key in direct.keys:
                direct.queues[key] = queue
                queue.in_flight += 1
                queue.writing = queue.writing or direct.writes

    def _finish_one(self, key: Key, queue: KeyQueue) -> Slot | None:
        queue.in_flight -= 1
        if queue.in_flight:
            return None
        if queue.waiting:
            slot = queue.waiting.popleft()
            queue.start(slot)
            return slot
        del self._queues[key]
        return None
