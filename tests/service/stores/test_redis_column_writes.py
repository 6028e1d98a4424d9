"""Redis writes a column of puts with the outcomes and the bytes of the same puts in a list."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis

from contract import COMPOSITE, INTEGERS, STRINGS, etag, one, put, put_column, text, value, written, written_in_column
from servers.process import HOST, free_port
from servers.proxy import FaultProxy
from servers.redis import redis
from service.stores.test_redis import configured
from service.stores.test_redis_faults import address
from support.redis_tables import connected, own
from tableside.catalog import Table
from tableside.catalog.table_metrics import OperationMetrics, TableMetrics
from tableside.core import PutColumn, WrittenColumn
from tableside.core.errors import RecordUnreadable, StoreUnavailable, TableError, Throttled
from tableside.core.operations import Delete, Get, Key, Outcome, Record, Token, Written
from tableside.core.store import Store, TableSpec
from tableside.stores.redis.connection import REQUEST_BYTES_MAX
from tableside.stores.redis.keys import KeyNames, side_key
from tableside.stores.redis.name_column import NameColumn
from tableside.stores.redis.record_scripts import RecordBatch, RecordScripts
from tableside.stores.redis.records import etag_of, etags_of, pack, pack_all, read_columns
from tableside.stores.redis.scripts import Command, PackedWords
from tableside.stores.redis.topology import COMMAND_KEYS_MAX
from tableside.stores.redis.writes import COLUMN_VALUE_BYTES_MAX, RecordWriter

SPACE = b" \t\n\r"
MARKER = b"\r\t\r\t"


def keys_of(count: int) -> list[str]:
    return [f"{index * 7919 % count:04}" for index in range(count)]


def texts_of(keys: Sequence[Key], size_bytes: int = 0) -> list[bytes]:
    """Return a different value for each key, of different lengths."""
    return [text(key=str(key), s="x" * (size_bytes + index % 3)) for index, key in enumerate(keys)]


# Records and commands


@pytest.mark.parametrize("count", [1, 2, 128, 1000])
def test_the_bytes_of_records_are_in_the_format_of_a_single_record(count: int) -> None:
    texts = texts_of(range(count))
    raws = pack_all(pa.array([b"before", *texts, b"after"], pa.binary())[1:-1])
    raws.validate(full=True)
    assert raws.type == pa.binary()
    for raw, value_put in zip(raws.to_pylist(), texts, strict=True):
        assert raw[: len(value_put) + 4] == pack(value_put)[: len(value_put) + 4] == value_put + MARKER
        assert len(raw) == len(pack(value_put)) == len(value_put) + 16
        assert set(raw[-12:]) <= set(SPACE)
    found = read_columns(raws.to_pylist())
    assert found is not None
    assert found.values.to_pylist() == texts
    assert "".join(found.etags.to_pylist()) == etags_of(raws.to_pylist()) == "".join(map(etag_of, raws.to_pylist()))


def test_the_random_bytes_of_records_differ() -> None:
    values = pa.array([b"{}"] * 1000, pa.binary())
    first, second = (pack_all(values).to_pylist() for _ in range(2))
    assert len({*first, *second}) > 1950
    for place in range(1, 13):
        counts = [[raw[-place] for raw in first].count(byte) for byte in SPACE]
        assert min(counts) > 150, "each character occurs at each place, about as often as the others"


KEYS: dict[str, Sequence[Any]] = {
    "one length": [f"{number:04}" for number in range(200)],
    "several lengths": [f"{number}" for number in range(1200)],
    "not ASCII": [("ü" if number % 2 else "e") + f"{number}" for number in range(200)],
    "longest": ["x" * 1024, "a", "ü" * 512, "🛫" * 256] * 40,
    "powers of two": ["x" * length for length in (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 1023, 1024)] * 12,
    "lines": ["\r\n$4\r\n", "$1", "\r\n", "{"] * 40,
    "integers": [0, -1, 7, 10, 2**63 - 1, -(2**63), *range(-100, 100)],
}


@pytest.mark.parametrize("prefix", ["t:", "ü:", "app/[users]*/{", "🛫" * 30])
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("script_text", [False, True], ids=["EVALSHA", "EVAL"])
def test_a_column_is_sent_like_a_list(prefix: str, keys: Sequence[Any], script_text: bool) -> None:
    names = KeyNames(prefix, INTEGERS if isinstance(keys[0], int) else STRINGS)
    column = names.for_column(pa.array([keys[0], *keys, keys[0]])[1:-1])
    assert column.have_usual_side_keys
    raws = pa.array([b"before", *(pack(value_put) for value_put in texts_of(keys)), b"after"], pa.binary())[1:-1]
    scripts = RecordScripts(None)
    batch = RecordBatch(names.for_keys(keys), keys, [(raw,) for raw in raws.to_pylist()])
    for part in (slice(None), slice(1, None), slice(3, 100), slice(7, 8)):
        positions = range(len(keys))[part]
        found = scripts.put_column(column[part], raws[part], positions)
        expected = scripts.put(batch, positions, 0)
        packed = b"".join(found.packed(script_text=script_text))
        assert packed == b"".join(expected.packed(script_text=script_text))
        assert found.positions == expected.positions


@pytest.mark.parametrize(
    ("prefix", "keys", "usual"),
    [
        ("t:", ["a", "b"], True),
        ("t{:", ["a", "b{"], True),
        ("t}:", ["a", "b"], False),
        ("{t}:", ["a", "b"], False),
        ("t:", ["a", "b}"], False),
        ("t:", ["}", "b"], False),
        ("t:", ["a", "{b}"], False),
    ],
)
def test_names_with_a_brace_have_other_side_keys(prefix: str, keys: list[str], usual: bool) -> None:
    column = KeyNames(prefix, STRINGS).for_column(pa.array(keys))
    assert column.have_usual_side_keys == usual
    assert usual == all(side_key(name) == f"_ts:{{{name}}}" for name in column)
    outside = KeyNames(prefix, STRINGS).for_column(pa.array(["a}", *keys, "}"])[1:-1])
    assert outside.have_usual_side_keys == usual, "other rows of the buffers do not count"


def test_packed_words_follow_the_words_of_a_command() -> None:
    packed = PackedWords(1, 2, (b"$1\r\na\r\n", b"$1\r\nb\r\n$2\r\ncd\r\n"))
    assert b"".join(Command(("SOME", "WORDS"), packed_words=packed).packed()) == (
        b"*5\r\n$4\r\nSOME\r\n$5\r\nWORDS\r\n$1\r\na\r\n$1\r\nb\r\n$2\r\ncd\r\n"
    )


# A server


@pytest.fixture(scope="module")
def own_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose data and statistics a test may delete, and whose configuration it may change for its time."""
    with redis(tmp_path_factory.mktemp("columns")) as url:
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


@pytest.fixture
def in_columns(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return whether each call with a column was executed as one."""
    calls: list[bool] = []
    original = RecordWriter.put_column

    async def noted(writer: RecordWriter, puts: PutColumn, until: float) -> Sequence[Outcome]:
        outcomes = await original(writer, puts, until)
        calls.append(isinstance(outcomes, WrittenColumn))
        return outcomes

    monkeypatch.setattr(RecordWriter, "put_column", noted)
    return calls


@pytest.mark.server
@pytest.mark.parametrize("count", [1, 2, 999, 1000, 1001, 2500])
async def test_records_have_the_bytes_of_single_puts(store: Any, tool: Any, count: int) -> None:
    keys = keys_of(count)
    texts = texts_of(keys)
    await tool.config_resetstat()
    outcomes = await store.apply(put_column(keys, texts))
    assert isinstance(outcomes, WrittenColumn)
    statistics = await tool.info("commandstats")
    assert statistics["cmdstat_mset"]["calls"] == -(-count // COMMAND_KEYS_MAX)
    assert "cmdstat_set" not in statistics
    raws = await tool.mget([name(store, key) for key in keys])
    for raw, value_put, outcome in zip(raws, texts, outcomes, strict=True):
        assert raw[:-12] == value_put + MARKER
        assert set(raw[-12:]) <= set(SPACE)
        assert outcome == Written(etag_of(raw))
    assert len({raw[-12:] for raw in raws}) > 0.99 * count
    assert await tool.dbsize() == count, "no side keys are created"
    assert [outcome.etag for outcome in outcomes] == [outcome.etag for outcome in await store.apply([*map(Get, keys)])]


@pytest.mark.server
@pytest.mark.parametrize("size_bytes", [1000, 1100, 2000])
async def test_a_command_has_a_bounded_size(
    store: Any, tool: Any, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    sizes: list[int] = []
    put_part = RecordScripts.put_column

    def noted(scripts: RecordScripts, names: NameColumn, raws: pa.Array, positions: Sequence[int]) -> Command:
        sizes.append(sum(map(len, raws.to_pylist())))
        return put_part(scripts, names, raws, positions)

    monkeypatch.setattr(RecordScripts, "put_column", noted)
    keys = keys_of(700)
    texts = texts_of(keys, size_bytes)
    texts[300] = text(s="x" * size_bytes * 2)
    assert isinstance(await store.apply(put_column(keys, texts)), WrittenColumn)
    assert max(sizes) <= REQUEST_BYTES_MAX + 16 * COMMAND_KEYS_MAX
    assert len(sizes) == -(-700 // min(COMMAND_KEYS_MAX, REQUEST_BYTES_MAX // len(texts[300])))
    await written_in_column(store, keys, texts)


@pytest.mark.server
@pytest.mark.parametrize("size_bytes", [COLUMN_VALUE_BYTES_MAX, COLUMN_VALUE_BYTES_MAX + 1])
async def test_values_above_a_limit_are_not_sent_from_a_column(
    store: Any, in_columns: list[bool], size_bytes: int
) -> None:
    keys = keys_of(200)
    texts = [*texts_of(keys, 100)[:-1], text(s="x" * (size_bytes - len(text(s=""))))]
    assert len(texts[-1]) == size_bytes
    await written_in_column(store, keys, texts)
    assert in_columns == [size_bytes == COLUMN_VALUE_BYTES_MAX]


@pytest.mark.server
@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("prefix", ["ü{:", "🛫" * 30], ids=["open brace", "long"])
async def test_keys_and_prefixes_of_all_kinds(
    own_url: str, tool: Any, keys: Sequence[Any], prefix: str, in_columns: list[bool]
) -> None:
    async with connected(own_url) as backend:
        schema = INTEGERS if isinstance(keys[0], int) else STRINGS
        store = await backend.store(own(TableSpec("t", schema), prefix=prefix))
        keys = list(dict.fromkeys(keys))
        await written_in_column(store, keys, texts_of(keys))
        assert sorted(await tool.keys()) == sorted(name(store, key).encode() for key in keys)
    assert in_columns == [True]


@pytest.mark.server
@pytest.mark.parametrize(
    ("prefix", "form"),
    [("plain:", "k{}}}"), ("{{tag}}:", "k{}"), ("p}}:", "k{}"), ("p{{:", "k{}"), ("plain:", "{{k{}}}x")],
    ids=["key", "tag", "prefix", "open", "tag in the key"],
)
async def test_braces_in_names_keep_the_tokens_of_records(own_url: str, tool: Any, prefix: str, form: str) -> None:
    async with connected(own_url) as backend:
        store = await backend.store(own(TableSpec("t"), prefix=prefix.format()))
        keys = [form.format(index) for index in range(150)]
        tokened = keys[::40]
        for key in tokened:
            await written(store, put(key, {"n": 1}, token=Token("w", 7)))
        await written_in_column(store, keys, texts_of(keys))
        for key in tokened:
            assert (await written(store, put(key, {"n": 3}, token=Token("w", 7)))).replayed
            assert not (await written(store, put(key, {"n": 3}, token=Token("w", 8)))).replayed


@pytest.mark.server
@pytest.mark.parametrize("places", [[0], [999], [1000], [1499], [5, 1200]], ids=str)
async def test_side_keys_keep_their_rules(store: Any, tool: Any, places: list[int], in_columns: list[bool]) -> None:
    keys = keys_of(1500)
    for place in places:
        await written(store, put(keys[place], {"n": 1}, ttl_s=600, token=Token("w", 7)))
    await written_in_column(store, keys, texts_of(keys))
    for place in places:
        side = side_key(name(store, keys[place]))
        assert await tool.get(side) == b'[1,["w",7]]'
        assert await tool.pexpiretime(side) == -1, "the side key expires no more, like its record"
        assert (await written(store, put(keys[place], {"n": 3}, token=Token("w", 7)))).replayed
        assert not (await written(store, put(keys[place], {"n": 3}, token=Token("w", 8)))).replayed
    assert in_columns == [True]


@pytest.mark.server
async def test_a_put_in_a_column_over_a_tombstone_keeps_its_tokens(store: Any, tool: Any) -> None:
    keys = keys_of(200)
    await written(store, put(keys[7], {"n": 1}))
    await written(store, Delete(keys[7], token=Token("w", 7)))
    assert await tool.get(side_key(name(store, keys[7]))) == b'[0,["w",7]]'
    await written_in_column(store, keys, texts_of(keys))
    assert await tool.get(side_key(name(store, keys[7]))) == b'[1,["w",7]]'


@pytest.mark.server
async def test_a_side_key_without_its_record_is_deleted(store: Any, tool: Any) -> None:
    keys = keys_of(200)
    await written(store, put(keys[7], {"n": 1}, token=Token("w", 7)))
    await tool.delete(name(store, keys[7]))
    await written_in_column(store, keys, texts_of(keys))
    assert not await tool.exists(side_key(name(store, keys[7])))
    assert not (await written(store, put(keys[7], {"n": 3}, token=Token("w", 7)))).replayed


@pytest.mark.server
@pytest.mark.parametrize("places", [[0], [1000], [3, 1499]], ids=str)
async def test_an_invalid_side_key_fails_only_its_put(store: Any, tool: Any, places: list[int]) -> None:
    keys = keys_of(1500)
    for place in places:
        await tool.hset(side_key(name(store, keys[place])), "field", "value")
    expected = await store.apply([put(key) for key in keys])
    before = await tool.mget([name(store, key) for key in keys])
    texts = texts_of(keys)
    outcomes = await store.apply(put_column(keys, texts))
    assert not isinstance(outcomes, WrittenColumn)
    assert [place for place, outcome in enumerate(outcomes) if isinstance(outcome, RecordUnreadable)] == places
    assert [str(outcomes[place]) for place in places] == [str(expected[place]) for place in places]
    raws = await tool.mget([name(store, key) for key in keys])
    for place, outcome in enumerate(outcomes):
        if place in places:
            assert raws[place] == before[place], "like a put in a list, it may have changed the record or not"
        else:
            assert outcome == Written(etag_of(raws[place]))
            assert raws[place].startswith(texts[place])


@pytest.mark.server
@pytest.mark.parametrize("place", [0, 999, 1000])
async def test_a_key_of_another_type_is_replaced(store: Any, tool: Any, place: int, in_columns: list[bool]) -> None:
    keys = keys_of(1500)
    await tool.rpush(name(store, keys[place]), "element")
    assert isinstance(await one(store, put(keys[place])), Written)
    await tool.delete(name(store, keys[place]))
    await tool.rpush(name(store, keys[place]), "element")
    await written_in_column(store, keys, texts_of(keys))
    assert in_columns == [True]


@pytest.mark.server
async def test_a_put_in_a_column_removes_the_expiry_of_a_record(store: Any, tool: Any) -> None:
    keys = keys_of(200)
    await written(store, put(keys[7], {"n": 1}, ttl_s=600))
    await written_in_column(store, keys, texts_of(keys))
    assert await tool.pttl(name(store, keys[7])) == -1


@pytest.mark.server
async def test_puts_in_a_column_need_no_permission_for_many_keys_at_once(own_url: str, tool: Any) -> None:
    commands = ["+@all", "-mset"]
    await tool.acl_setuser("limited", enabled=True, passwords=["+geheim"], keys=["*"], commands=commands)
    try:
        async with connected(own_url, username="limited", password="geheim") as backend:
            store = await backend.store(own(TableSpec("t")))
            keys = keys_of(1500)
            await written_in_column(store, keys, texts_of(keys))
    finally:
        await tool.acl_deluser("limited")


@pytest.mark.server
async def test_a_user_without_permission_for_the_names_writes_nothing(own_url: str, tool: Any) -> None:
    await tool.acl_setuser("limited", enabled=True, passwords=["+geheim"], keys=["other:*"], commands=["+@all"])
    try:
        async with connected(own_url, username="limited", password="geheim") as backend:
            store = await backend.store(own(TableSpec("t")))
            expected = await store.apply([put(key) for key in keys_of(1500)])
            outcomes = await store.apply(put_column(keys_of(1500), texts_of(keys_of(1500))))
    finally:
        await tool.acl_deluser("limited")
    assert [(type(outcome), str(outcome)) for outcome in outcomes] == [
        (type(outcome), str(outcome)) for outcome in expected
    ]
    assert {getattr(outcome, "applied", None) for outcome in outcomes} == {"no"}
    assert await tool.dbsize() == 0


@pytest.mark.server
async def test_scripts_are_loaded_again_after_a_flush(store: Any, tool: Any, in_columns: list[bool]) -> None:
    keys = keys_of(2500)
    for _ in range(2):
        await tool.script_flush()
        await written_in_column(store, keys, texts_of(keys))
    assert in_columns == [True, True]


@pytest.mark.server
async def test_a_server_that_restarts_is_used_again(tmp_path: Path) -> None:
    keys = keys_of(1500)
    async with FaultProxy(HOST, free_port()) as proxy, connected(f"redis://{HOST}:{proxy.port}/0") as backend:
        with redis(tmp_path) as url:
            proxy.server = address(url)
            store = await backend.store(own(TableSpec("t")))
            await written_in_column(store, keys, texts_of(keys))
        outcomes = await store.apply(put_column(keys, texts_of(keys)))
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
        assert len(outcomes) == 1500
        with redis(tmp_path) as url:
            proxy.server = address(url)
            await written_in_column(store, keys, texts_of(keys))


@pytest.mark.server
async def test_a_lost_response_makes_each_outcome_unknown(own_url: str, tool: Any) -> None:
    keys = keys_of(1500)
    async with FaultProxy(*address(own_url)) as proxy, connected(f"redis://{HOST}:{proxy.port}/0") as backend:
        store = await backend.store(own(TableSpec("t")))
        await written_in_column(store, keys, texts_of(keys))
        proxy.answer_lost(once=True)
        outcomes = await store.apply(put_column(keys, [text(n=2)] * 1500))
        unknown = [outcome.applied for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
        assert len(outcomes) == 1500
        assert unknown
        assert {*unknown} == {"unknown"}
        proxy.forward()
        raws = await tool.mget([name(store, key) for key in keys])
        for outcome, raw in zip(outcomes, raws, strict=True):
            assert isinstance(outcome, TableError) or outcome == Written(etag_of(raw))


@pytest.mark.server
async def test_a_server_without_memory_throttles_each_put(own_url: str, store: Any, tool: Any) -> None:
    keys = keys_of(1500)
    await written(store, put(keys[0], {"n": 1}))
    before = await tool.get(name(store, keys[0]))
    async with configured(own_url, maxmemory="1"):
        outcomes = await store.apply(put_column(keys, texts_of(keys)))
        listed = await store.apply([put(key) for key in keys])
    assert {type(outcome) for outcome in outcomes} == {Throttled}
    assert [str(outcome) for outcome in outcomes] == [str(outcome) for outcome in listed]
    assert {(outcome.applied, outcome.retriable) for outcome in outcomes} == {("no", True)}
    assert await tool.dbsize() == 1
    assert await tool.get(name(store, keys[0])) == before
    await written_in_column(store, keys, texts_of(keys))


@pytest.mark.server
async def test_a_put_in_a_column_ends_a_reported_rejection(own_url: str, tool: Any) -> None:
    async with connected(own_url) as backend:
        store, keys = await backend.store(own(TableSpec("t"))), keys_of(200)
        async with configured(own_url, **{"min-replicas-to-write": "1"}):
            outcomes = await store.apply(put_column(keys, texts_of(keys)))
            assert len(outcomes) == 200
            assert all(isinstance(outcome, TableError) for outcome in outcomes)
            with pytest.raises(StoreUnavailable, match="rejected the last writes"):
                await backend.ping()
        await written_in_column(store, keys, texts_of(keys))
        await backend.ping()


@pytest.mark.server
async def test_a_table_whose_records_expire_writes_no_column(own_url: str, tool: Any, in_columns: list[bool]) -> None:
    async with connected(own_url) as backend:
        store = await backend.store(own(TableSpec("t", ttl_s=600)))
        keys = keys_of(200)
        found = await written_in_column(store, keys, texts_of(keys))
        assert all(outcome.expires_ms > 0 for outcome in found)
        assert await tool.pttl(name(store, keys[7])) > 0
    assert in_columns == []


@pytest.mark.server
async def test_a_cluster_writes_no_column(redis_cluster_urls: list[str], in_columns: list[bool]) -> None:
    async with connected(redis_cluster_urls[0], cluster=True) as backend:
        store, keys = await backend.store(own(TableSpec("t"))), keys_of(200)
        await written(store, put(keys[7], {"n": 1}, token=Token("w", 7)))
        await written_in_column(store, keys, texts_of(keys))
        assert (await written(store, put(keys[7], {"n": 3}, token=Token("w", 7)))).replayed
    assert in_columns == []


@pytest.mark.server
async def test_a_table_with_an_index_writes_no_column(own_url: str, tool: Any) -> None:
    """Its keys have two parts, which no column has."""
    async with connected(own_url) as backend:
        store: Any = await backend.store(own(TableSpec("t", COMPOSITE)))
        simple: Any = await backend.store(own(TableSpec("s")))
    assert (store._puts_columns, simple._puts_columns) == (False, True)


@pytest.mark.server
async def test_a_table_writes_columns_without_objects(store: Any, tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(column: Sequence[Any]) -> list[Any]:
        assert len(column) == 1, "objects are made"
        return [Written("e")]

    keys, registry = keys_of(2500), CollectorRegistry()
    table = Table(store, metrics=TableMetrics(OperationMetrics(registry), "t"))
    with monkeypatch.context() as patch:
        for kind in (PutColumn, NameColumn, WrittenColumn):
            patch.setattr(kind, "_make", fails)
        outcomes = await table.batch(put_column(keys, texts_of(keys)))
    assert isinstance(outcomes, WrittenColumn)
    records = await store.apply(list(map(Get, keys)))
    assert list(outcomes) == [Written(record.etag) for record in records]
    labels = {"table": "t", "operation": "put", "outcome": "written"}
    assert registry.get_sample_value("tableside_operations_total", labels) == 2500


@pytest.mark.server
async def test_a_repeated_key_has_an_outcome_at_each_position(store: Any) -> None:
    keys = [*keys_of(100), *keys_of(50)]
    texts = [text(n=index) for index in range(150)]
    outcomes = await Table(store).batch(put_column(keys, texts))
    assert {type(outcome) for outcome in outcomes} == {Written}
    for index, key in enumerate(keys[:100]):
        last = len(keys) - 1 - keys[::-1].index(key)
        assert await value(store, key) == {"n": last}
        outcome = outcomes[last]
        assert isinstance(outcome, Written)
        assert outcome.etag == await etag(store, key), index


@pytest.mark.server
async def test_a_closed_backend_fails_each_put(own_url: str) -> None:
    async with connected(own_url) as backend:
        store: Store = await backend.store(own(TableSpec("t")))
        await backend.close()
        outcomes = await store.apply(put_column(keys_of(1500), texts_of(keys_of(1500))))
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 1500


@pytest.mark.server
async def test_conditions_hold_for_the_etags_of_a_column(store: Any) -> None:
    keys = keys_of(200)
    found = await written_in_column(store, keys, texts_of(keys))
    outcome = await one(store, put(keys[7], {"n": 1}, if_match=(found[7].etag or "",)))
    assert isinstance(outcome, Written)
    assert isinstance(await one(store, put(keys[7], {"n": 1}, if_match=(found[7].etag or "",))), TableError)
    assert isinstance(await one(store, Get(keys[7])), Record)
