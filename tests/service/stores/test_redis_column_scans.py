"""Redis returns a page in columns if all of its records fit into columns."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

from contract import COMPOSITE, INTEGERS, pages, put
from servers.redis import redis
from support.redis_tables import connected, own
from tableside.core import COLUMN_BYTES_MAX, KEYS_MIN, Key, Record, RecordUnreadable
from tableside.core.columns import KeyedRecords
from tableside.core.errors import MalformedRequest
from tableside.core.operations import Get
from tableside.core.store import Scan, Store, TableSpec
from tableside.stores.redis import keyspace, scans
from tableside.stores.redis.name_column import NameColumn, NamedKeyColumn

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def own_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server without keys that expire: records are read in columns only from such a database."""
    with redis(tmp_path_factory.mktemp("scans")) as url:
        yield url


@pytest.fixture
async def tool(own_url: str) -> AsyncIterator[Any]:
    """Another tool that works with the same server. Its keys are deleted after a test."""
    async with Redis.from_url(own_url) as client:
        yield client
        await client.flushall()


@pytest.fixture
async def store(own_url: str, tool: Any) -> AsyncIterator[Any]:
    async with connected(own_url) as backend:
        yield await backend.store(own(TableSpec("t")))


def name(store: Any, key: Key) -> str:
    return f"{store.spec.options.prefix}{key}"


async def fill(store: Store, keys: Sequence[Key], length: int = 1) -> None:
    outcomes = await store.apply([put(key, {"key": str(key), "x": "x" * length}) for key in keys])
    assert len(outcomes) == len(keys)


async def check(store: Store, scan: Scan, keys: Sequence[Key], *, in_columns: bool | None) -> None:
    """Compare the pages of a scan with gets of its keys. `in_columns` is None if the order of SCAN decides it."""
    found = await pages(store, scan)
    records = [one for page in found for one in page.records]
    assert sorted(map(str, [key for key, _ in records])) == sorted(map(str, keys))
    gets: list[Any] = [*await store.apply([Get(key) for key, _ in records])]
    assert [record for _, record in records] == gets
    assert all(type(record) is Record for record in gets)
    assert in_columns is None or {isinstance(page.records, KeyedRecords) for page in found} == {in_columns}
    assert all(page.size_bytes > 0 for page in found)


@pytest.mark.parametrize("count", [KEYS_MIN - 1, KEYS_MIN, 600, 2500])
async def test_a_page_of_many_plain_records_is_in_columns(store: Store, count: int) -> None:
    keys = [f"ü{index:05}" for index in range(count)]
    await fill(store, keys)
    await check(store, Scan(10_000), keys, in_columns=count >= KEYS_MIN)


@pytest.mark.parametrize("limit", [700, 1024, 2499])
async def test_pages_continue_after_columns(store: Store, limit: int) -> None:
    keys = [f"{index}" for index in range(2500)]
    await fill(store, keys)
    found = await pages(store, Scan(limit))
    assert sorted(key for page in found for key, _ in page.records) == sorted(keys)
    assert all(len(page.records) <= limit for page in found)
    assert isinstance(found[0].records, KeyedRecords)


async def test_a_page_in_columns_makes_no_objects(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(column: object) -> None:
        raise AssertionError("objects are made")

    await fill(store, [f"{index}" for index in range(2500)])
    for kind in (NamedKeyColumn, NameColumn, KeyedRecords):
        monkeypatch.setattr(kind, "_make", fails)
    assert len((await store.scan(Scan(10_000))).records) == 2500


async def test_integer_keys_are_in_a_column_and_composite_keys_are_not(own_url: str, tool: Any) -> None:
    async with connected(own_url) as backend:
        integers = await backend.store(own(TableSpec("t", INTEGERS)))
        pairs = await backend.store(own(TableSpec("p", COMPOSITE)))
        keys = [-(2**63), *range(-100, 100), 2**63 - 1]
        await fill(integers, keys)
        await check(integers, Scan(10_000), keys, in_columns=True)
        await fill(pairs, [("a", key) for key in keys])
        await check(pairs, Scan(10_000), [("a", key) for key in keys], in_columns=False)
        for text in ("007", "-0", "+1", " 1", "1.0", "", str(2**63)):
            await tool.set(name(integers, text), b"{}")
            await check(integers, Scan(10_000), keys, in_columns=False)
            await tool.delete(name(integers, text))


@pytest.mark.parametrize("text", [b"", b"\xff", b"\xed\xa0\x80", b"a\x00b", b"x" * 1025])
async def test_names_that_are_no_keys_of_the_table_are_skipped(store: Store, tool: Any, text: bytes) -> None:
    keys = [f"{index}" for index in range(300)]
    await fill(store, keys)
    await tool.set(name(store, "").encode() + text, b"{}")
    await check(store, Scan(10_000), keys, in_columns=False)


@pytest.mark.parametrize("raw", [b'{"a":1}', b'{ "a": 1.0 }'])
async def test_records_of_another_tool_are_in_a_page_with_others(store: Store, tool: Any, raw: bytes) -> None:
    keys = [f"{index}" for index in range(1500)]
    await fill(store, keys)
    await tool.set(name(store, "77"), raw)
    await check(store, Scan(10_000), keys, in_columns=None)


async def test_a_page_with_a_record_that_expires_has_objects(store: Store) -> None:
    keys = [f"{index}" for index in range(1500)]
    await fill(store, keys)
    await store.apply([put("77", {"n": 1}, ttl_s=60)])
    await check(store, Scan(10_000), keys, in_columns=False)


async def test_a_key_of_another_type_fails_the_page_and_is_named(store: Store, tool: Any) -> None:
    await fill(store, [f"{index}" for index in range(1500)])
    await tool.rpush(name(store, "list"), "a")
    with pytest.raises(RecordUnreadable, match="`list`"):
        await pages(store, Scan(10_000))


async def test_records_that_are_deleted_meanwhile_are_not_in_the_page(
    store: Store, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{index}" for index in range(1500)]
    await fill(store, keys)

    async def deleting(*arguments: Any) -> Any:
        reply = await keyspace.scan_node(*arguments)
        await tool.delete(name(store, "77"), name(store, "1400"))
        return reply

    monkeypatch.setattr(scans, "scan_node", deleting)
    await check(store, Scan(10_000), [key for key in keys if key not in ("77", "1400")], in_columns=None)


async def test_a_name_that_is_in_a_reply_twice_is_in_the_page_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{index}" for index in range(400)]
    await fill(store, keys)

    async def repeated(*arguments: Any) -> Any:
        run, cursor, names = await keyspace.scan_node(*arguments)
        return run, cursor, names[:50] + names

    monkeypatch.setattr(scans, "scan_node", repeated)
    await check(store, Scan(10_000), keys, in_columns=True)


async def test_the_records_of_a_page_in_columns_are_limited_in_bytes(store: Store) -> None:
    keys = [f"{index}" for index in range(2000)]
    await fill(store, keys, length=COLUMN_BYTES_MAX // 2000)
    await check(store, Scan(10_000), keys, in_columns=False)
    scan = Scan(10_000, bytes_max=200_000)
    found = await pages(store, scan)
    assert {len(page.records) for page in found[:-1]} < {*range(150, 250)}
    await check(store, replace(scan, limit=100), keys, in_columns=False)


async def test_a_scan_of_a_table_among_others_finds_many_records_at_once(
    store: Store, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"{index}" for index in range(3000)]
    await fill(store, keys)
    await tool.mset({f"other:{index}": "" for index in range(27_000)})
    counts: list[int] = []

    async def counted(*arguments: Any) -> Any:
        run, cursor, names = await keyspace.scan_node(*arguments)
        counts.append(len(names))
        return run, cursor, names

    monkeypatch.setattr(scans, "scan_node", counted)
    await check(store, Scan(10_000), keys, in_columns=True)
    assert len(counts) <= 12, "with SCANs that inspect 512 keys, 59"
    assert len(await pages(store, Scan(700))) <= 7


@pytest.mark.parametrize("bytes_max", [3000, 30_000])
async def test_pages_among_other_keys_that_end_within_a_reply_repeat_no_record(
    store: Store, tool: Any, bytes_max: int
) -> None:
    keys = [f"{index}" for index in range(3000)]
    await fill(store, keys)
    await tool.mset({f"other:{index}": "" for index in range(9000)})
    found = await pages(store, Scan(10_000, bytes_max=bytes_max))
    assert sorted(key for page in found for key, _ in page.records) == sorted(keys)
    assert len(found) >= 3


@pytest.mark.parametrize(
    "position", [b"[]", b'["0-16383","","",-1]', b'["0-16383","","",0,"",-1]', b'["","","",0,"",8193]']
)
def test_a_position_that_no_scan_returns_is_rejected(position: bytes) -> None:
    with pytest.raises(MalformedRequest):
        keyspace.Position.from_bytes(position)
