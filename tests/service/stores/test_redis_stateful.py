"""Random batches compared with a naive table, on a real Redis and a real cluster, with the servers' clocks."""

from dataclasses import replace
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace as changed

from contract import same, scanned
from service.test_stateful import KEYS, Machine, as_naive, operations
from support.naive import Naive, Sent
from support.redis_tables import own
from tableside.catalog.table import Table
from tableside.core import values
from tableside.core.operations import Get, Put, Record, Update, Written
from tableside.core.store import TableSpec, now_ms
from tableside.stores.redis.backend import RedisBackend
from tableside.stores.redis.settings import RedisSettings

CLOCKS_MS = 5000
"""The maximum difference between the test's clock and the server's time of a write."""


class RedisMachine(Machine):
    """Redis has its own clock, so no virtual time passes, and lifetimes of seconds become hours."""

    redis: RedisSettings

    async def opened(self) -> RedisBackend:
        return await RedisBackend.open(self.redis)

    @initialize(ttl_s=st.sampled_from([None, None, 5000.0]))
    def start(self, ttl_s: float | None) -> None:
        self.now = now_ms()
        self.naive = Naive(ttl_s)
        self.spec = own(TableSpec("t", ttl_s=ttl_s))
        self.backend = self.run(self.opened())
        self.table = Table(self.run(self.backend.store(self.spec)))

    @rule(batch=st.lists(operations(), min_size=1, max_size=12))
    def batch(self, batch: list[tuple[Sent, str | None]]) -> None:
        sent = [self.with_etag(long_lived(asked), etag) for asked, etag in batch]
        answers = self.run(self.table.batch([asked.operation for asked in sent]))
        for asked, answer in zip(sent, answers, strict=True):
            found, wanted = as_naive(answer), self.naive.do(asked, now_ms())
            assert replace(found, value=None, until_ms=None) == replace(wanted, value=None, until_ms=None), asked
            assert abs((found.until_ms or 0) - (wanted.until_ms or 0)) < CLOCKS_MS, asked
            assert same(found.value, wanted.value), asked
            if isinstance(answer, Written) and answer.etag is not None:
                self.seen[str(asked.operation.key)].append(answer.etag)

    @rule(seconds=st.just(0))
    def time_passes(self, seconds: int) -> None:
        self.now = now_ms()

    @invariant()
    def records_are_the_same(self) -> None:
        if not hasattr(self, "table"):
            return
        wanted = self.naive.records(self.now)
        for key, answer in zip(KEYS, self.run(self.table.batch([Get(key) for key in KEYS])), strict=True):
            assert isinstance(answer, Record) == (key in wanted)
            if isinstance(answer, Record):
                assert same(values.decode(answer.value), wanted[key])
                self.naive.held[key] = replace(self.naive.held[key], version=answer.etag)
                self.seen[key].append(answer.etag)
        scan: Any = scanned(cast("Any", self.table), limit=100)  # A page ends early if it takes too long.
        assert {*self.run(scan)} == set(wanted)


def long_lived(asked: Sent) -> Sent:
    operation: Any = asked.operation
    if isinstance(operation, Put | Update) and operation.ttl_s not in (None, -1):
        return replace(asked, operation=changed(operation, ttl_s=operation.ttl_s * 1000))
    return asked


@pytest.mark.server
@pytest.mark.parametrize(("fixture", "examples"), [("redis_url", 3), ("redis_cluster_urls", 2)])
def test_redis_equals_the_naive_table(fixture: str, examples: int, full: bool, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(fixture)
    url, cluster = (found, False) if isinstance(found, str) else (found[0], True)
    given = RedisSettings.model_validate({"url": url, "cluster": cluster})
    machine = type("AgainstIt", (RedisMachine,), {"redis": given})
    bounds = settings(
        max_examples=examples * 2 if full else examples,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=bounds)
