"""Direct calls of the stores' drivers without the service, on an event loop in this process.

The drivers are those that the service uses.
Batches are prepared in the driver's format before the measurement, and values stay in the driver's format.
"""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

import aioboto3
import asyncpg
import redis as blocking
import redis.asyncio as redis
import uvloop
from aiobotocore.config import AioConfig

from .cases import PLAIN, Case, Op

TABLE = "direct"
CONNECTIONS = 32
CALLS_AT_ONCE = 16
"""The maximum number of concurrent DynamoDB calls for one batch, as in the service."""


DriverRate: TypeAlias = Callable[[int, float], float]
"""Measures operations per second, for a number of concurrent requests and a duration in seconds."""


@dataclass(frozen=True)
class Batch:
    """A batch in the driver's format: gets, puts, and updates that add 1 to the member `seats`."""

    gets: Any
    puts: Any
    updates: Any


class Driver(Protocol):
    """The operations of a store's driver."""

    @classmethod
    async def open(cls, where: str) -> Self:
        """Connect, and create the table if the store has tables."""
        ...

    def ready(self, keys: Sequence[str], case: Case = PLAIN) -> Batch:
        """Return prepared batches over these keys, with the values of a case. Only redis-py applies its `ttl_s`."""
        ...

    async def get(self, batch: Batch) -> None:
        """Read the records of a batch, identifiable by key."""
        ...

    async def put(self, batch: Batch) -> None:
        """Write them."""
        ...

    async def update(self, batch: Batch) -> None:
        """Add 1 to a member of each."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def redis_name(key: str, case: Case) -> str:
    """Return the key of a record in Redis."""
    return f"{TABLE}:{case.table}:{key}"


class RedisPy:
    """redis-py on asyncio, with hiredis."""

    ADD = """
    local value = cjson.decode(redis.call("GET", KEYS[1]))
    value.seats = value.seats + 1
    redis.call("SET", KEYS[1], cjson.encode(value))
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = redis.Redis.from_url(url, max_connections=CONNECTIONS)
        self._sha = ""

    @classmethod
    async def open(cls, where: str) -> Self:
        driver = cls(where)
        driver._sha = await driver._client.script_load(cls.ADD)
        return driver

    def ready(self, keys: Sequence[str], case: Case = PLAIN) -> Batch:
        names = [redis_name(key, case) for key in keys]
        puts = [(name, case.value(key), case.ttl_s) for name, key in zip(names, keys, strict=True)]
        return Batch(names, puts, names)

    async def get(self, batch: Batch) -> None:
        assert None not in await self._client.mget(batch.gets)

    async def put(self, batch: Batch) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for put in batch.puts:
                pipeline.set(*put)
            await pipeline.execute()

    async def update(self, batch: Batch) -> None:
        if len(batch.updates) == 1:
            await self._client.evalsha(self._sha, 1, *batch.updates)
            return
        async with self._client.pipeline(transaction=False) as pipeline:
            for name in batch.updates:
                pipeline.evalsha(self._sha, 1, name)
            await pipeline.execute()

    async def close(self) -> None:
        await self._client.aclose()


class BlockingRedisPy(RedisPy):
    """redis-py without asyncio. Batches run one after the other, so concurrency has no effect."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._blocking = blocking.Redis.from_url(url)

    async def get(self, batch: Batch) -> None:
        assert None not in self._blocking.mget(batch.gets)

    async def put(self, batch: Batch) -> None:
        with self._blocking.pipeline(transaction=False) as pipeline:
            for put in batch.puts:
                pipeline.set(*put)
            pipeline.execute()

    async def update(self, batch: Batch) -> None:
        with self._blocking.pipeline(transaction=False) as pipeline:
            for name in batch.updates:
                pipeline.evalsha(self._sha, 1, name)
            pipeline.execute()

    async def close(self) -> None:
        await super().close()
        self._blocking.close()


class Asyncpg:
    """asyncpg, one statement for a batch."""

    MAKE = f"create table if not exists {TABLE} (key text primary key, value jsonb not null)"
    GET = f"select key, value from {TABLE} where key = any($1)"
    PUT = f"""
    insert into {TABLE} (key, value) select key, value::jsonb from unnest($1::text[], $2::text[]) as given (key, value)
    on conflict (key) do update set value = excluded.value
    """
    # Lock rows in key order: otherwise two batches over the same keys could deadlock.
    ADD = f"""
    with locked as (select key from {TABLE} where key = any($1) order by key for update)
    update {TABLE} set value = jsonb_set(value, '{{seats}}', to_jsonb((value ->> 'seats')::bigint + 1))
    from locked where {TABLE}.key = locked.key
    """

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @classmethod
    async def open(cls, where: str) -> Self:
        pool = await asyncpg.create_pool(where, min_size=1, max_size=CONNECTIONS)
        await pool.execute(cls.MAKE)
        return cls(pool)

    def ready(self, keys: Sequence[str], case: Case = PLAIN) -> Batch:
        ordered = sorted(keys)  # so puts also lock rows in key order
        return Batch(keys, (ordered, [case.value(key).decode() for key in ordered]), keys)

    async def get(self, batch: Batch) -> None:
        found = dict(await self._pool.fetch(self.GET, batch.gets))  # PostgreSQL returns the rows in any order
        assert len(found) == len(batch.gets)

    async def put(self, batch: Batch) -> None:
        await self._pool.execute(self.PUT, *batch.puts)

    async def update(self, batch: Batch) -> None:
        await self._pool.execute(self.ADD, batch.updates)

    async def close(self) -> None:
        await self._pool.close()


class Aioboto3:
    """aioboto3's client: 100 gets per call, 25 puts per call, one update per call, with concurrent calls."""

    def __init__(self) -> None:
        self._opened = AsyncExitStack()
        self._client: Any = None

    @classmethod
    async def open(cls, where: str) -> Self:
        driver = cls()
        config = AioConfig(max_pool_connections=4 * CALLS_AT_ONCE)
        client = aioboto3.Session().client("dynamodb", endpoint_url=where, config=config)
        driver._client = await driver._opened.enter_async_context(client)
        if TABLE not in (await driver._client.list_tables())["TableNames"]:
            await driver._client.create_table(
                TableName=TABLE,
                KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        return driver

    def ready(self, keys: Sequence[str], case: Case = PLAIN) -> Batch:
        items = [{"key": {"S": key}, **_attributes(case.value(key))} for key in keys]
        return Batch(
            [
                {TABLE: {"Keys": [{"key": {"S": key}} for key in part], "ConsistentRead": True}}
                for part in _chunks(keys, 100)
            ],
            [{TABLE: [{"PutRequest": {"Item": item}} for item in part]} for part in _chunks(items, 25)],
            [{"key": {"S": key}} for key in keys],
        )

    async def get(self, batch: Batch) -> None:
        answers = await _together([self._client.batch_get_item(RequestItems=part) for part in batch.gets])
        found = {item["key"]["S"]: item for answer in answers for item in answer["Responses"][TABLE]}
        assert len(found) == len(batch.updates)

    async def put(self, batch: Batch) -> None:
        answers = await _together([self._client.batch_write_item(RequestItems=part) for part in batch.puts])
        assert not any(answer["UnprocessedItems"] for answer in answers)

    async def update(self, batch: Batch) -> None:
        add: dict[str, Any] = {"UpdateExpression": "ADD seats :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
        await _together([self._client.update_item(TableName=TABLE, Key=key, **add) for key in batch.updates])

    async def close(self) -> None:
        await self._opened.aclose()


async def _together(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    limit = asyncio.Semaphore(CALLS_AT_ONCE)

    async def limited(call: Coroutine[Any, Any, Any]) -> Any:
        async with limit:
            return await call

    return await asyncio.gather(*map(limited, calls))


def _chunks(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _attributes(value: bytes) -> dict[str, dict[str, str]]:
    members = json.loads(value).items()
    return {name: {"S": each} if isinstance(each, str) else {"N": str(each)} for name, each in members}


class Direct:
    """The drivers, connected."""

    def __init__(self, drivers: Mapping[str, type[Driver]], where: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._drivers = {name: self._runner.run(driver.open(where)) for name, driver in drivers.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self._drivers.values():
            self._runner.run(driver.close())
        self._runner.close()

    def fill(self, batches: Sequence[Sequence[str]], case: Case = PLAIN) -> None:
        """Write the records."""
        for driver in self._drivers.values():
            for batch in batches:
                self._runner.run(driver.put(driver.ready(batch, case)))

    def rates(self, op: Op, batches: Sequence[Sequence[str]], case: Case = PLAIN) -> dict[str, DriverRate]:
        """Return a function for each driver that measures batches over these keys."""
        return {name: self._rate(driver, op, batches, case) for name, driver in self._drivers.items()}

    def _rate(self, driver: Driver, op: Op, batches: Sequence[Sequence[str]], case: Case) -> DriverRate:
        ready, size = [driver.ready(batch, case) for batch in batches], len(batches[0])

        def rate(at_once: int, seconds: float) -> float:
            return size * self._runner.run(_repeated(driver, op, ready, at_once, seconds))

        return rate


async def _repeated(driver: Driver, op: Op, batches: Sequence[Batch], at_once: int, seconds: float) -> float:
    """Return the number of batches per second with this many coroutines. Each executes at least one batch."""
    run = getattr(driver, op)
    started, count = time.perf_counter(), 0

    async def work(index: int) -> None:
        nonlocal count
        first = position = index * len(batches) // at_once
        while position == first or time.perf_counter() - started < seconds:
            await run(batches[position % len(batches)])
            position += 1
            count += 1

    async with asyncio.TaskGroup() as tasks:
        for index in range(at_once):
            tasks.create_task(work(index))
    return count / (time.perf_counter() - started)
