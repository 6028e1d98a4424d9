"""Which operations may be under way together: on one key a write is alone, and nothing overtakes what came before.

Small calls are kept track of by key. A large one is remembered as a whole, and its keys are looked at only when
something else is under way that they might concern. Knows nothing of time or of the store.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter

from ...core import Key, Operation
from .waiters import Place

_KEY = attrgetter("key")


class Lane:
    """The operations on one key: how many are under way (or in the call that forms), and those that wait for these."""

    __slots__ = ("busy", "last", "waiting", "writing")

    def __init__(self) -> None:
        self.busy = 0
        self.writing = False
        self.last: Place | None = None
        self.waiting: deque[Place] | None = None

    def may_enter(self, place: Place) -> bool:
        """Whether an operation may be under way with those that are."""
        return not self.waiting and (not self.busy or (place.reads and not self.writing))

    def enter(self, place: Place) -> None:
        """Count an operation as under way."""
        self.busy += 1
        self.writing = not place.reads


class Direct:
    """A large call, or a part of one, that goes by itself; `lanes` are those of its keys that others have asked for."""

    def __init__(self, operations: Sequence[Operation], *, writes: bool) -> None:
        self.operations = operations
        self.writes = writes
        self.sent = False
        self.lanes: dict[Key, Lane] = {}

    @cached_property
    def keys(self) -> frozenset[Key]:
        """Return the keys of its operations."""
        return frozenset(map(_KEY, self.operations))


class Order:
    """Everything that was accepted and is not finished, as far as order needs it."""

    def __init__(self) -> None:
        self._lanes: dict[Key, Lane] = {}
        self._reading: dict[Direct, None] = {}
        self._writing: dict[Direct, None] = {}

    def __len__(self) -> int:
        """Return how many keys and large calls are waiting or under way."""
        return len(self._lanes) + len(self._reading) + len(self._writing)

    def joined(self, key: Key) -> Place | None:
        """Return the place that a get of the key can share: the last one, if that is a get and not under way."""
        lane = self._lanes.get(key)
        last = None if lane is None else lane.last
        return last if last is not None and last.reads and last.call is None else None

    def accept(self, place: Place) -> bool:
        """Put an operation behind what came before on its key; tell whether it may go now."""
        key = place.operation.key
        if (lane := self._lanes.get(key)) is None:
            lane = self._lanes[key] = Lane()
            self._count(key, lane, self._writing)
        if not place.reads:
            self._count(key, lane, self._reading)
        lane.last = place
        if lane.may_enter(place):
            lane.enter(place)
            return True
        if lane.waiting is None:
            lane.waiting = deque()
        lane.waiting.append(place)
        return False

    def finish(self, places: Iterable[Place]) -> list[Place]:
        """Take operations out that could go; return what may go now instead."""
        left = [self._left(key, self._lanes[key]) for key in (place.operation.key for place in places)]
        return [place for place in left if place is not None]

    def held(self, operations: Sequence[Operation], *, writes: bool) -> list[int]:
        """Return the positions of operations on keys that something under way or waiting may concern."""
        others = [*self._writing, *self._reading] if writes else [*self._writing]
        if not self._lanes and not others:
            return []
        keys = list(map(_KEY, operations))
        if self._lanes.keys().isdisjoint(keys) and all(other.keys.isdisjoint(keys) for other in others):
            return []
        taken = self._lanes.keys() | set().union(*(other.keys for other in others))
        return [position for position, key in enumerate(keys) if key in taken]

    def begin(self, direct: Direct) -> None:
        """Remember a large call; none of its keys is held."""
        (self._writing if direct.writes else self._reading)[direct] = None

    def end(self, direct: Direct) -> list[Place]:
        """Forget a large call; return what may go now."""
        del (self._writing if direct.writes else self._reading)[direct]
        left = [self._left(key, lane) for key, lane in direct.lanes.items()]
        return [place for place in left if place is not None]

    def _count(self, key: Key, lane: Lane, directs: dict[Direct, None]) -> None:
        for direct in directs:
            if key not in direct.lanes and key in direct.keys:
                direct.lanes[key] = lane
                lane.busy += 1
                lane.writing = lane.writing or direct.writes

    def _left(self, key: Key, lane: Lane) -> Place | None:
        lane.busy -= 1
        if lane.busy:
            return None
        if lane.waiting:
            place = lane.waiting.popleft()
            lane.enter(place)
            return place
        del self._lanes[key]
        return None
