"""Outcomes of operations when the network to Redis fails, and that the store recovers without intervention."""

import socket
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest
from redis.asyncio import Redis

from contract import one, pages, put, update, written
from contract.faults import Faults, apply_in_time
from servers.process import HOST, free_port
from servers.proxy import FaultProxy, address
from servers.redis import redis
from support.redis_tables import connected, own, table, unopened
from support.waiting import eventually
from tableside.catalog.table import Table
from tableside.core.errors import DeadlineExceeded, StoreUnavailable, TableError
from tableside.core.operations import Delete, Get, Operation, Record, Written
from tableside.core.store import Scan, Store, TableSpec

pytestmark = pytest.mark.server


class TestFaults(Faults):
    @pytest.fixture(autouse=True)
    def _server(self, redis_url: str) -> None:
        self.url, self.spec = redis_url, own(TableSpec("t"))

    def opened(self, url: str, connections_max: int) -> AbstractAsyncContextManager[Store]:
        return table(url, self.spec, connections_max=connections_max)

    async def test_a_lost_response_makes_the_outcome_unknown(self, proxy: FaultProxy, store: Store) -> None:
        writes: list[Operation] = [put("put", {"n": 1}), Delete("delete")]
        for index, write in enumerate(writes):
            proxy.answer_lost(once=True)
            outcome = await one(store, write)
            assert isinstance(outcome, StoreUnavailable)
            assert outcome.applied == "unknown"
            found = await one(store, Get(write.key))
            assert isinstance(found, Record) == (index == 0)

    async def test_outcomes_finished_by_the_deadline_are_kept(self, proxy: FaultProxy, store: Store) -> None:
        whole = Table(store, deadline_s=2.0)
        operations: list[Operation] = [Get("kept"), put("put", {"n": 1}), update("update", {"$push": {"list": 1}}, {})]
        await written(store, put("kept", {"n": 1}))
        await whole.batch(operations)  # This opens the connections and loads the scripts.
        proxy.delay(1.4)  # An update takes two round trips, which is too long.
        outcomes = await whole.batch(operations)
        assert isinstance(outcomes[0], Record)
        assert isinstance(outcomes[1], Written)
        assert isinstance(outcomes[2], DeadlineExceeded)
        assert outcomes[2].applied == "unknown"


async def test_a_long_write_that_the_server_does_not_read_leaves_no_connection() -> None:
    with socket.create_server((HOST, 0)) as unused:
        port = unused.getsockname()[1]
        with unopened(f"redis://{HOST}:{port}/0") as store:
            outcomes = await apply_in_time(store, [put(f"{index}", {"long": "x" * 9_000_000}) for index in range(3)])
        assert all(isinstance(outcome, DeadlineExceeded) for outcome in outcomes)
        assert "unknown" in {outcome.applied for outcome in outcomes if isinstance(outcome, TableError)}
        await eventually(lambda: port not in connected_ports())


def connected_ports() -> list[int]:
    return [found.raddr.port for found in psutil.Process().net_connections("tcp") if found.raddr]


async def test_a_scan_continues_after_a_restart_of_the_server(tmp_path: Path) -> None:
    keys = [f"{index:03}" for index in range(300)]
    async with FaultProxy(HOST, free_port()) as proxy, connected(f"redis://{HOST}:{proxy.port}/0") as backend:
        with redis(tmp_path, arguments=["--dir", str(tmp_path)]) as url:
            proxy.server = address(url)
            store = await backend.store(TableSpec("t"))
            await store.apply([put(key) for key in keys])
            page = await store.scan(Scan(10))
            async with Redis.from_url(url) as client:
                await client.save()
        with redis(tmp_path, arguments=["--dir", str(tmp_path)]) as url:
            proxy.server = address(url)
            await eventually(lambda: proxy.open_connections == 0)  # The first server closed them.
            met = [key for key, _ in page.records]
            for later in await pages(store, Scan(10, position=page.position)):
                met += [key for key, _ in later.records]
        assert set(met) == set(keys)
