"""Random batches compared with a naive table, on a real Redis and a real cluster, with the servers' clocks."""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, run_state_machine_as_test
from msgspec.structs import replace as changed

from service.test_stateful import Machine
from support.naive import Naive, Sent
from support.redis_tables import own
from tableside.catalog.table import Table
from tableside.core.operations import Put, Update
from tableside.core.store import TableSpec, now_ms
from tableside.stores.redis.backend import RedisBackend
from tableside.stores.redis.settings import RedisSettings


class RedisMachine(Machine):
    """Redis has its own clock, so no virtual time passes, and lifetimes of seconds become hours."""

    redis: RedisSettings
    clock_error_ms = 5000

    @property
    def now(self) -> int:
        return now_ms()

    @now.setter
    def now(self, time_ms: int) -> None:
        pass

    @initialize(ttl_s=st.sampled_from([None, None, 5000.0]))
    def start(self, ttl_s: float | None) -> None:
        self.naive, self.spec = Naive(ttl_s), own(TableSpec("t", ttl_s=ttl_s))
        self.backend = self.run(RedisBackend.open(self.redis))
        self.table = Table(self.run(self.backend.store(self.spec)))

    def adapted(self, asked: Sent) -> Sent:
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
