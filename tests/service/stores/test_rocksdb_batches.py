"""RocksDB reads batches in turns and in calls of bounded size, and writes plain puts in one pass."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contract import one, put, written
from service.stores.test_rocksdb import database
from support.waiting import eventually
from tableside.core.operations import Delete, Get, Operation, Outcome, Record, Token, Written
from tableside.core.store import Store, TableSpec
from tableside.stores.memory import MemoryStore
from tableside.stores.rocksdb import RocksdbBackend, reads
from tableside.stores.rocksdb.database import UNKNOWN_BYTES, Contents


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[RocksdbBackend]:
    async with database(tmp_path) as opened:
        yield opened


@pytest.fixture
async def store(backend: RocksdbBackend) -> Store:
    return await backend.store(TableSpec("t"))


async def test_a_large_batch_of_gets_leaves_turns_to_other_gets(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "KEYS_PER_TURN_MAX", 20)
    finished: list[int] = []

    async def apply(count: int) -> None:
        await store.apply([Get(f"{count}-{index}") for index in range(count)])
        finished.append(count)

    await asyncio.gather(apply(2000), apply(20))
    assert finished == [20, 2000]


@pytest.mark.parametrize(
    ("size_bytes", "known", "first", "most"),
    [(10, True, 100, 100), (10, False, 1, 8), (100_000, True, 19, 20), (100_000, False, 1, 1)],
)
async def test_records_that_may_be_large_are_read_a_few_at_a_time(
    backend: RocksdbBackend, monkeypatch: pytest.MonkeyPatch, size_bytes: int, known: bool, first: int, most: int
) -> None:
    store = await backend.store(TableSpec("t"))
    await store.apply([put(f"{index:02}", {"text": "x" * size_bytes}) for index in range(100)])
    counts: list[int] = []
    get = backend._database.get

    def counted(keys: list[bytes]) -> list[bytes | None]:
        counts.append(len(keys))
        return get(keys)

    monkeypatch.setattr(backend._database, "get", counted)
    if not known:
        backend._database.note_sweep(Contents(UNKNOWN_BYTES))
    monkeypatch.setattr(reads, "READ_BYTES_MAX", 2_000_000)
    await store.apply([Get(f"{index:02}") for index in range(100)])
    assert counts[0] == first
    assert max(counts) <= most


STATES: dict[str, list[Operation]] = {
    "absent": [],
    "plain": [put("a")],
    "expiring": [put("a", ttl_s=1000)],
    "lower": [put("a", token=Token("w", 4))],
    "far lower": [put("a", token=Token("w", 0))],
    "same": [put("a", token=Token("w", 500))],
    "higher": [put("a", token=Token("w", 2**63 - 1))],
    "another writer": [put("a", token=Token("v", 9))],
    "a longer name": [put("a", token=Token("ww", 9))],
    "two writers": [put("a", token=Token("v", 9)), put("a", token=Token("w", 4))],
    "tombstone": [Delete("a", token=Token("w", 4))],
    "replayed tombstone": [Delete("a", token=Token("w", 500))],
}


@pytest.mark.parametrize("before", STATES.values(), ids=STATES.keys())
@pytest.mark.parametrize("options", [{}, {"ttl_s": 500}, {"returning": True}, {"if_match": ("*",)}], ids=str)
async def test_puts_with_tokens_have_the_outcomes_of_another_store(
    store: Store, before: list[Operation], options: dict[str, Any]
) -> None:
    token = Token("w", 500)
    found: list[object] = []
    for each in (store, MemoryStore(TableSpec("t"))):
        for operation in before:
            await written(each, operation)
        outcome = await one(each, put("a", {"n": 2}, token=token, **options))
        last = await one(each, Get("a"))
        if isinstance(outcome, Written) and isinstance(last, Record):
            assert outcome.etag == last.etag
        others = [Token("w", 500), Token("v", 9), Token("ww", 9), Token("w", 501)]
        replays = [(await written(each, put("a", {"n": 3}, token=other))).replayed for other in others]
        found.append((_described(outcome), _described(last), replays))
    assert found[0] == found[1]


def _described(outcome: Outcome) -> object:
    """Return an outcome without etag and time of expiry, which differ between stores."""
    if isinstance(outcome, Written):
        return outcome.created, outcome.replayed, outcome.value, outcome.expires_ms > 0
    return (outcome.value, outcome.expires_ms > 0) if isinstance(outcome, Record) else type(outcome)


async def test_plain_puts_read_only_tables_that_may_have_other_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reads_of(backend: RocksdbBackend, table: str) -> int:
        """Return how many records a batch of plain puts reads."""
        counts: list[int] = []
        store, get = await backend.store(TableSpec(table)), backend._database.get

        def counted(keys: list[bytes]) -> list[bytes | None]:
            counts.append(len(keys))
            return get(keys)

        with monkeypatch.context() as patch:
            patch.setattr(backend._database, "get", counted)
            await store.apply([put("a"), put("b"), put("c")])
        return sum(counts)

    async with database(tmp_path) as backend:
        assert await reads_of(backend, "plain") == 0
        other = await backend.store(TableSpec("other"))
        await written(other, put("b", {"n": 1}, token=Token("w", 5)))
        assert [await reads_of(backend, "other"), await reads_of(backend, "plain")] == [3, 0]
    async with database(tmp_path, sweep_every_s=0.05) as backend:
        assert [await reads_of(backend, "other"), await reads_of(backend, "plain")] == [3, 3]
        await eventually(lambda: backend._database.record_bytes_max < UNKNOWN_BYTES)
        assert [await reads_of(backend, "other"), await reads_of(backend, "plain")] == [3, 0]
        replay = await written(await backend.store(TableSpec("other")), put("b", {"n": 3}, token=Token("w", 5)))
        assert replay.replayed
