"""A cache around a scripted store, on a clock that the test advances."""

from typing import Any

from contract import put
from support.scripted import Scripted
from support.virtual_time import now
from tableside.core.budget import Budget
from tableside.core.operations import Get, Key, Operation, Outcome, Record
from tableside.core.store import TableSpec
from tableside.policies.cache import Cache
from tableside.policies.metrics import PolicyMetrics
from tableside.stores.memory import MemoryStore


class Site:
    """A cache around a store, both on the loop's clock. The store contains only record `a` with n = 0."""

    def __init__(self, spec: TableSpec | None = None, metrics: PolicyMetrics | None = None, **given: Any) -> None:
        spec = spec or TableSpec("t")
        self.memory = MemoryStore(spec, self.now_ms)
        self.store = Scripted(self.memory)
        options = {"records_max": 100, "bytes_max": 2**20, "ttl_s": 10.0, "absent_ttl_s": 2.0, **given}
        self.cache = Cache(self.store, clock=self.now_ms, monotonic=now, metrics=metrics, **options)

    @classmethod
    async def made(cls, **given: Any) -> "Site":
        site = cls(**given)
        await site.elsewhere(put("a", {"n": 0}))
        return site

    @staticmethod
    def now_ms() -> int:
        return round(now() * 1000)

    async def elsewhere(self, operation: Operation) -> None:
        """Write past the cache, as another replica does."""
        await self.memory.apply([operation])

    async def one(self, operation: Operation, within_s: float = 100.0) -> Outcome:
        [outcome] = await self.cache.apply([operation], Budget(now() + within_s))
        return outcome

    async def value(self, key: Key = "a", max_age_s: float | None = None) -> bytes | None:
        outcome = await self.one(Get(key, max_age_s))
        assert outcome is None or isinstance(outcome, Record), outcome
        return None if outcome is None else outcome.value

    def takes(self, *seconds: float) -> None:
        """Set the duration of each of the next calls. Later calls take no time."""
        left = list(seconds)
        self.store.takes_s = lambda operations: left.pop(0) if left else 0.0

    @property
    def asked(self) -> list[list[Key]]:
        return [[operation.key for operation in call] for call in self.store.calls]
