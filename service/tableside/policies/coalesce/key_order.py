"""Which operations may be under way together: on one key a write is alone, and nothing overtakes what came before.

Small calls are kept track of by key. A large one is remembered as a whole, and its keys are looked at only when
something else is under way that they might concern. Knows nothing of time or of the store.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter

from ...core import Key, Operation
from .waiters import Slot

_KEY = attrgetter("key")


class KeyQueue:
    """The operations on one key: how many are under way (or in the call that forms), and those that wait for these."""

    __slots__ = ("in_flight", "last", "waiting", "writing")

    def __init__(self) -> None:
        self.in_flight = 0
        self.writing = False
        self.last: Slot | None = None
        self.waiting: deque[Slot] | None = None

    def may_start(self, slot: Slot) -> bool:
        """Whether an operation may be under way with those that are."""
        return not self.waiting and (not self.in_flight or (slot.reads and not self.writing))

    def start(self, slot: Slot) -> None:
        """Count an operation as under way."""
        self.in_flight += 1
        self.writing = not slot.reads


class DirectCall:
    """A large call, or a part of one, that goes by itself; `lanes` are those of its keys that others have asked for."""

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
    """Everything that was accepted and is not finished, as far as order needs it."""

    def __init__(self) -> None:
        self._queues: dict[Key, KeyQueue] = {}
        self._reading: dict[DirectCall, None] = {}
        self._writing: dict[DirectCall, None] = {}

    def __len__(self) -> int:
        """Return how many keys and large calls are waiting or under way."""
        return len(self._queues) + len(self._reading) + len(self._writing)

    def joined(self, key: Key) -> Slot | None:
        """Return the slot that a get of the key can share: the last one, if that is a get and not under way."""
        queue = self._queues.get(key)
        last = None if queue is None else queue.last
        return last if last is not None and last.reads and last.call is None else None

    def accept(self, slot: Slot) -> bool:
        """Put an operation behind what came before on its key; tell whether it may go now."""
        key = slot.operation.key
        if (queue := self._queues.get(key)) is None:
            queue = self._queues[key] = KeyQueue()
            self._count(key, queue, self._writing)
        if not slot.reads:
            self._count(key, queue, self._reading)
        queue.last = slot
        if queue.may_start(slot):
            queue.start(slot)
            return True
        if queue.waiting is None:
            queue.waiting = deque()
        queue.waiting.append(slot)
        return False

    def finish(self, slots: Iterable[Slot]) -> list[Slot]:
        """Take operations out that could go; return what may go now instead."""
        left = [self._left(key, self._queues[key]) for key in (slot.operation.key for slot in slots)]
        return [slot for slot in left if slot is not None]

    def held(self, operations: Sequence[Operation], *, writes: bool) -> list[int]:
        """Return the positions of operations on keys that something under way or waiting may concern."""
        others = [*self._writing, *self._reading] if writes else [*self._writing]
        if not self._queues and not others:
            return []
        keys = list(map(_KEY, operations))
        if self._queues.keys().isdisjoint(keys) and all(other.keys.isdisjoint(keys) for other in others):
            return []
        taken = self._queues.keys() | set().union(*(other.keys for other in others))
        return [position for position, key in enumerate(keys) if key in taken]

    def begin(self, direct: DirectCall) -> None:
        """Remember a large call; none of its keys is held."""
        (self._writing if direct.writes else self._reading)[direct] = None

    def end(self, direct: DirectCall) -> list[Slot]:
        """Forget a large call; return what may go now."""
        del (self._writing if direct.writes else self._reading)[direct]
        left = [self._left(key, queue) for key, queue in direct.queues.items()]
        return [slot for slot in left if slot is not None]

    def _count(self, key: Key, queue: KeyQueue, directs: dict[DirectCall, None]) -> None:
        for direct in directs:
            if key not in direct.queues and key in direct.keys:
                direct.queues[key] = queue
                queue.in_flight += 1
                queue.writing = queue.writing or direct.writes

    def _left(self, key: Key, queue: KeyQueue) -> Slot | None:
        queue.in_flight -= 1
        if queue.in_flight:
            return None
        if queue.waiting:
            slot = queue.waiting.popleft()
            queue.start(slot)
            return slot
        del self._queues[key]
        return None
