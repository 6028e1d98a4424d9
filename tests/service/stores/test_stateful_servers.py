"""Random batches compared with a naive table, on every server."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from service.stores.test_postgres_columns import COLUMNS, make as make_columns
from service.test_stateful import Machine, check
from support.dynamodb_tables import a_name, make as make_items, settings as dynamodb_settings
from support.naive import Naive, Sent
from support.postgres_tables import new_name, settings as postgres_settings
from support.redis_tables import own
from tableside.core.backend import Backend
from tableside.core.operations import Put, Update
from tableside.core.store import TableSpec, now_ms
from tableside.stores.dynamodb.backend import DynamodbBackend
from tableside.stores.dynamodb.client import Client
from tableside.stores.postgres.backend import PostgresBackend
from tableside.stores.redis.backend import RedisBackend
from tableside.stores.redis.settings import RedisSettings


class ServerMachine(Machine):
    url = ""


class RedisMachine(ServerMachine):
    """Redis has its own clock, so no virtual time passes, and lifetimes of seconds become hours."""

    clock_error_ms = 5000
    cluster = False

    @property
    def now(self) -> int:
        return now_ms()

    @now.setter
    def now(self, time_ms: int) -> None:
        pass

    async def opened(self) -> Backend:
        ttl_s = self.spec.ttl_s and self.spec.ttl_s * 1000
        self.naive, self.spec = Naive(ttl_s), own(TableSpec("t", ttl_s=ttl_s))
        return await RedisBackend.open(RedisSettings.model_validate({"url": self.url, "cluster": self.cluster}))

    def adapted(self, asked: Sent) -> Sent:
        operation: Any = asked.operation
        if isinstance(operation, Put | Update) and operation.ttl_s not in (None, -1):
            return replace(asked, operation=changed(operation, ttl_s=operation.ttl_s * 1000))
        return asked


class ClusterMachine(RedisMachine):
    cluster = True


class DocumentsMachine(ServerMachine):
    """PostgreSQL with a table of documents."""

    async def opened(self) -> Backend:
        self.spec = changed(self.spec, create=True, stored_as=new_name())
        return await PostgresBackend.open(postgres_settings(self.url, sweep_every_s=0.05), lambda: self.now)


class ColumnsMachine(DocumentsMachine):
    """PostgreSQL with a table of columns that take any JSON."""

    async def opened(self) -> Backend:
        backend = await super().opened()
        self.spec = changed(self.spec, options=COLUMNS)
        await make_columns(self.url, self.spec.name_in_store, self.spec)
        return backend


class DynamodbMachine(ServerMachine):
    """DynamoDB Local with a table whose items only the store lets expire, since time is virtual."""

    async def opened(self) -> Backend:
        client = Client(dynamodb_settings(self.url))
        self.spec = changed(self.spec, stored_as=a_name())
        await make_items(client, self.spec.name_in_store, {"_ts_key": "S"})
        return DynamodbBackend(client, lambda: self.now)


@pytest.mark.server
@pytest.mark.usefixtures("aws_credentials")
@pytest.mark.parametrize(
    ("machine", "server", "examples"),
    [
        (RedisMachine, "redis_url", 3),
        (ClusterMachine, "redis_cluster_urls", 2),
        (DocumentsMachine, "postgres_dsn", 4),
        (ColumnsMachine, "postgres_dsn", 3),
        (DynamodbMachine, "dynamodb_url", 3),
    ],
)
def test_a_server_equals_the_naive_table(
    machine: type[ServerMachine], server: str, examples: int, full: bool, request: pytest.FixtureRequest
) -> None:
    found = request.getfixturevalue(server)
    machine.url = found if isinstance(found, str) else found[0]
    check(machine, 3 * examples if full else examples, steps=20)
