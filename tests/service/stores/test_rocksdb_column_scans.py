"""RocksDB returns a page in columns if all of its records fit into columns."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contract import COMPOSITE, INTEGERS, Time, put
from service.stores.test_rocksdb import database
from tableside.core import COLUMN_BYTES_MAX, KEYS_MIN, Key, Record, Token
from tableside.core.columns import KeyedRecords
from tableside.core.operations import Get
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.rocksdb import RocksdbBackend
from tableside.stores.rocksdb.scans import KEYS_PER_TURN_MAX


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RocksdbBackend]:
    async with database(tmp_path, Time(real=False)) as opened:
        yield opened


async def fill(store: Store, keys: Sequence[Key], length: int = 1) -> None:
    outcomes = await store.apply([put(key, {"key": str(key), "x": "x" * length}) for key in keys])
    assert len(outcomes) == len(keys)


async def check(store: Store, scan: Scan, keys: Sequence[Key], *, in_columns: bool) -> None:
    """Compare a page with gets of its keys."""
    page = await store.scan(scan)
    assert [key for key, _ in page.records] == list(keys)
    found: list[Any] = [*await store.apply([Get(key) for key in keys])]
    assert [record for _, record in page.records] == found
    assert all(type(record) is Record for record in found)
    assert isinstance(page.records, KeyedRecords) == in_columns
    assert page.size_bytes > 0


@pytest.mark.parametrize("count", [KEYS_MIN - 1, KEYS_MIN, KEYS_PER_TURN_MAX, KEYS_PER_TURN_MAX + 1, 2500])
async def test_a_page_of_many_plain_records_is_in_columns(backend: RocksdbBackend, count: int) -> None:
    store = await backend.store(TableSpec("t"))
    keys = [f"ü{index:05}" for index in range(count)]
    await fill(store, keys)
    await check(store, Scan(10_000), keys, in_columns=count >= KEYS_MIN)
    for limit in {count // 2, count - 1}:
        await check(store, Scan(limit), keys[:limit], in_columns=limit >= KEYS_MIN)
        position, rest = (await store.scan(Scan(limit))).position, keys[limit:]
        await check(store, Scan(10_000, position=position), rest, in_columns=len(rest) >= KEYS_MIN)


async def test_integer_keys_are_in_a_column_and_composite_keys_are_not(backend: RocksdbBackend) -> None:
    integers, pairs = await backend.store(TableSpec("t", INTEGERS)), await backend.store(TableSpec("p", COMPOSITE))
    keys = [-(2**63), *range(-100, 100), 2**63 - 1]
    await fill(integers, keys)
    await check(integers, Scan(10_000), keys, in_columns=True)
    await fill(pairs, [("a", key) for key in keys])
    await check(pairs, Scan(10_000), [("a", key) for key in keys], in_columns=False)


@pytest.mark.parametrize("place", [0, 500, 1500, 2499])
@pytest.mark.parametrize("member", ["ttl_s", "token"])
async def test_a_record_that_expires_or_begins_a_page_with_a_token_makes_objects(
    backend: RocksdbBackend, place: int, member: str
) -> None:
    store = await backend.store(TableSpec("t"))
    keys = [f"{index:05}" for index in range(2500)]
    await fill(store, keys)
    unusual: dict[str, Any] = {"ttl_s": 60} if member == "ttl_s" else {"token": Token("w", 1)}
    await store.apply([put(keys[place], {"n": 1}, **unusual)])
    in_columns = member == "token" and place >= KEYS_PER_TURN_MAX
    await check(store, Scan(10_000), keys, in_columns=in_columns)


async def test_the_records_of_a_page_in_columns_are_limited_in_bytes(backend: RocksdbBackend) -> None:
    store = await backend.store(TableSpec("t"))
    keys = [f"{index:05}" for index in range(2000)]
    await fill(store, keys, length=COLUMN_BYTES_MAX // 2000)
    await check(store, Scan(10_000), keys, in_columns=False)
    await check(store, Scan(1000), keys[:1000], in_columns=True)
    page = await store.scan(Scan(10_000, bytes_max=200_000))
    count = len(page.records)
    size_bytes = sum(len(record.value) + len(str(key)) for key, record in page.records)
    assert size_bytes + 4 * count > 200_000
    assert size_bytes - len(page.records[-1][1].value) < 200_000
    await check(store, Scan(100, position=page.position), keys[count : count + 100], in_columns=False)
