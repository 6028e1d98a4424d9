"""A store whose disk is full, or that is read-only, reports this without writing, and recovers automatically."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from contract import one, put, written
from contract.faults import WRITES
from servers.container import with_own_mounts
from servers.redis import redis
from support.postgres_tables import database, new_name
from support.redis_tables import connected, own
from tableside.core.errors import StoreUnavailable, WritesRejected
from tableside.core.operations import Get, Record
from tableside.core.store import TableSpec

TESTS = Path(__file__).parents[2]


@pytest.mark.server
def test_rocksdb_on_a_full_disk_loses_nothing_and_recovers(tmp_path: Path) -> None:
    options = [] if os.getuid() == 0 else ["--map-root-user"]
    command = [*with_own_mounts(*options), sys.executable, "-m", "service.stores.full_disk", str(tmp_path)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "refused": ["WritesRejected", "table 't': RocksDB could not write", "unknown"],
        "again": ["WritesRejected", "table 't': RocksDB could not write", "unknown"],
        "while full": True,
        "ping while full": "the store rejected the last writes: its disk is full, or it is read-only",
        "after": ["Written", None, None],
        "ping after": None,
        "lost": [],
        "unexpected": [],
    }
    assert "No space left on device" in done.stderr


@pytest.mark.server
async def test_a_read_only_postgresql_is_reported(postgres_dsn: str) -> None:
    spec = TableSpec("t", stored_as=new_name(), create=True)
    async with database(postgres_dsn) as backend:
        await written(await backend.store(spec), put("a"))
    sign = "&" if "?" in postgres_dsn else "?"
    async with database(f"{postgres_dsn}{sign}default_transaction_read_only=on") as backend:
        store = await backend.store(spec)
        await backend.ping()
        for operation in WRITES:
            outcome = await one(store, operation)
            assert isinstance(outcome, WritesRejected), operation
            assert (outcome.detail, outcome.applied) == ("table 't': PostgreSQL is read-only", "no")
        with pytest.raises(StoreUnavailable, match="rejected the last writes"):
            await backend.ping()
        assert isinstance(await one(store, Get("a")), Record)


@pytest.mark.server
async def test_a_redis_that_rejects_writes_is_reported(tmp_path: Path) -> None:
    with redis(tmp_path) as url:
        async with connected(url) as backend, Redis.from_url(url) as tool:
            store = await backend.store(own(TableSpec("t")))
            await tool.config_set("min-replicas-to-write", 1)
            for operation in WRITES:
                outcome = await one(store, operation)
                assert isinstance(outcome, WritesRejected), operation
                assert (outcome.detail, outcome.applied) == (
                    "Redis rejects writes because it has too few replicas",
                    "no",
                )
                with pytest.raises(StoreUnavailable, match="rejected the last writes"):
                    await backend.ping()
            assert await one(store, Get("put")) is None
            await tool.config_set("min-replicas-to-write", 0)
            await written(store, put("put"))
            await backend.ping()
