"""Tables on the primary that Sentinels name, while it changes. The tests use real Sentinels."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from contract import put, value, written
from servers.process import HOST
from servers.redis import Watched, redis_sentinel
from support.redis_tables import connected, redis_key, table
from support.waiting import WAIT_MAX_S, eventually, until
from tableside.core.budget import Budget
from tableside.core.errors import StoreMisconfigured, StoreUnavailable, TableError
from tableside.core.operations import Get, Record, Written
from tableside.core.store import TableSpec
from tableside.stores.redis.servers import ASK_INTERVAL_S

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A primary that no test replaces."""
    with redis_sentinel(tmp_path_factory.mktemp("sentinel")) as servers:
        yield servers


@asynccontextmanager
async def tool(port: int) -> AsyncIterator[Any]:
    async with Redis(host=HOST, port=port) as client:
        yield client


async def until_named(watched: Watched, port: int) -> None:
    await asyncio.to_thread(until, lambda: watched.named() == {port})


class Writers:
    """Writes numbered records until stopped, and notes which were acknowledged."""

    def __init__(self, store: Any) -> None:
        self.acknowledged: list[tuple[float, str]] = []
        self._store = store
        self._stopped = False

    async def run(self, name: str) -> None:
        number = 0
        while not self._stopped:
            number += 1
            key = f"{name}-{number}"
            [outcome] = await self._store.apply([put(key, {})], Budget(time.monotonic() + 0.3))
            if isinstance(outcome, Written):
                self.acknowledged.append((time.monotonic(), key))
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        self._stopped = True

    async def until_acknowledged_after(self, at: float) -> None:
        await eventually(lambda: self.acknowledged[-1][0] > at)

    async def lost(self) -> list[float]:
        """Return the times of acknowledged records that are absent now."""
        found = await self._store.apply([Get(key) for _, key in self.acknowledged])
        return [at for (at, _), record in zip(self.acknowledged, found, strict=True) if not isinstance(record, Record)]


async def fail_over(sentinel: Any, watched: Watched) -> None:
    """Promote the replica. Sentinel refuses that until it has heard from the replica recently."""
    async with asyncio.timeout(WAIT_MAX_S):
        while True:
            try:
                await sentinel.execute_command("SENTINEL", "FAILOVER", watched.service)
            except ResponseError as error:
                if "NOGOODSLAVE" not in str(error):
                    raise
                await asyncio.sleep(0.1)
            else:
                return


@asynccontextmanager
async def writing(store: Any) -> AsyncIterator[Writers]:
    writers = Writers(store)
    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(writers.run(name))
        try:
            await eventually(lambda: len(writers.acknowledged) > 20)
            yield writers
        finally:
            writers.stop()


async def test_records_are_on_the_primary_that_the_sentinels_name(watched: Watched) -> None:
    async with connected(watched.url) as backend, tool(watched.primary) as primary:
        store = await backend.store(TableSpec("t", create=True))
        await written(store, put("a", {"n": 1}))
        assert await value(store, "a") == {"n": 1}
        assert await backend.tables() == ["t"]
        await backend.ping()
        assert await primary.exists("t:a") == 1
        assert backend.connections().open >= 1


async def test_after_a_failure_of_the_primary_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as watched:
        async with table(watched.url) as store, tool(watched.primary) as primary:
            process = (await primary.info("server"))["process_id"]
            async with writing(store) as writers:
                os.kill(process, signal.SIGSTOP)
                try:
                    await until_named(watched, watched.replica)
                    await writers.until_acknowledged_after(time.monotonic() + 1)
                finally:
                    os.kill(process, signal.SIGCONT)
            assert await writers.lost() == []


async def test_a_replaced_primary_that_still_accepts_writes_gets_none(tmp_path: Path) -> None:
    """After a planned failover, the old primary accepts writes for about eight seconds and then loses them."""
    with redis_sentinel(tmp_path) as watched:
        async with table(watched.url) as store, tool(watched.sentinels[0]) as sentinel:
            async with writing(store) as writers:
                await fail_over(sentinel, watched)
                await until_named(watched, watched.replica)
                named_at = time.monotonic()
                await writers.until_acknowledged_after(named_at + 1.5)
                async with tool(watched.primary) as old:
                    assert (await old.role())[0] == b"master"
            assert [at - named_at for at in await writers.lost() if at > named_at + 0.5] == []


async def test_reads_do_not_stay_on_a_primary_that_was_replaced(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as watched:
        async with table(watched.url) as store, tool(watched.sentinels[0]) as sentinel:
            await written(store, put("a", {"n": 1}))
            await fail_over(sentinel, watched)
            await until_named(watched, watched.replica)
            async with tool(watched.replica) as new:
                await new.set(redis_key(store, "a"), '{"n":2}')
            async with asyncio.timeout(5):  # The old primary would return the old value for about eight seconds.
                while await value(store, "a") != {"n": 2}:
                    await asyncio.sleep(0.01)


async def test_a_server_that_is_no_primary_is_not_used(tmp_path: Path) -> None:
    """As while a Sentinel has an old configuration."""
    with redis_sentinel(tmp_path) as watched:
        async with tool(watched.primary) as primary:
            await primary.replicaof(HOST, watched.replica)
            async with connected(watched.url) as backend:
                with pytest.raises(StoreUnavailable, match="is a replica") as raised:
                    await backend.ping()
                assert raised.value.retriable


async def test_without_sentinels_the_last_primary_is_used(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as watched:
        async with table(watched.url) as store:
            for port in watched.sentinels:
                async with tool(port) as sentinel:
                    await sentinel.shutdown()
            await asyncio.sleep(3 * ASK_INTERVAL_S)
            await written(store, put("a", {}))
        async with connected(watched.url) as backend:
            with pytest.raises(StoreUnavailable, match="no Sentinel responds") as raised:
                await backend.ping()
            assert raised.value.retriable


async def rejection(url: str, **settings: Any) -> TableError:
    async with connected(url, **settings) as backend:
        with pytest.raises(StoreMisconfigured) as raised:
            await backend.store(TableSpec("t"))
        return raised.value


async def test_a_service_that_no_sentinel_knows_is_named(watched: Watched) -> None:
    assert "service 'other'" in (await rejection(watched.url.replace("records", "other"))).detail


async def test_a_redis_that_is_no_sentinel_is_an_error_in_words(watched: Watched) -> None:
    url = f"redis+sentinel://{HOST}:{watched.primary}/records"
    assert "does not know the command SENTINEL" in (await rejection(url)).detail


async def test_sentinels_and_redis_have_passwords_of_their_own(tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as watched:
        for port in (watched.primary, watched.replica):
            async with tool(port) as server:
                await server.config_set("masterauth", "inner")
                await server.config_set("requirepass", "inner")
        for port in watched.sentinels:
            async with tool(port) as sentinel:
                await sentinel.execute_command("SENTINEL", "SET", watched.service, "auth-pass", "inner")
                await sentinel.execute_command("ACL", "SETUSER", "default", "resetpass", ">guard")
        async with table(watched.url, password="inner", sentinel_password="guard") as store:
            await written(store, put("a", {}))
        assert "`sentinel_password`" in (await rejection(watched.url, password="inner")).detail
        assert "`password`" in (await rejection(watched.url, sentinel_password="guard")).detail
